"""A history is recorded alike, whether a store tells it itself or DynamoDB's stream does."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.task import State
from headrace.domain.write import TaskWrite
from headrace.history.changelog import Changelog
from headrace.history.counters import BUCKETS, BUFFER, SERIES, TOTALS, Counters
from headrace.history.recorder import Recorded, Recording
from headrace.store.base import LakeObject
from headrace.store.memory import MemoryStore
from headrace.store.stream import writes_of
from tests.manual_clock import ManualClock
from tests.property.test_recording import COMMON, RecordedService, calls, no_wait
from tests.property.walks import in_part
from tests.streamed import SHARD, stream_records

SECOND = 1_000_000


class FilesByName:
    """A lake that is a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def get(self, name: str, within: range | None = None) -> bytes | None:
        assert within is None
        return self.files.get(name)

    def list(self, prefix: str) -> list[LakeObject]:
        return [LakeObject(name, 0, "") for name in self.files if name.startswith(prefix)]


class Books:
    """A recorder with a lake and counters of its own."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.lake = FilesByName()
        self.clock = ManualClock()
        counters = Counters(self.store, self.clock, no_wait)
        self.recording = Recording(counters, Changelog(self.lake, ("*",)))

    def record(self, writes: Sequence[TaskWrite]) -> Recorded:
        """Record *writes*, a minute after those before."""
        self.clock.forward(61)
        return self.recording.record(SHARD, writes)

    def all(self) -> Any:
        """Return everything that was written: the lake's bytes, and the counters' records."""
        kinds = [BUFFER, TOTALS, *(f"{SERIES}{bucket}" for bucket in range(BUCKETS))]
        records = [self.store.records(kind, limit=100)[0] for kind in kinds]
        return dict(self.lake.files), [[(one.name, one.body) for one in found] for found in records]


def to_the_second(write: TaskWrite) -> TaskWrite:
    """Return *write* recorded when the stream would say: it tells no parts of a second."""
    return write._replace(recorded_at=write.recorded_at // SECOND * SECOND)


def of_stream(writes: Sequence[TaskWrite]) -> list[TaskWrite]:
    records = json.loads(json.dumps(stream_records(writes)))
    for record in records:
        for image in {"OldImage", "NewImage"} & record["dynamodb"].keys():
            record["dynamodb"][image]["of_a_later_version"] = {"BOOL": True}
    read, unreadable = writes_of(records)
    assert not unreadable
    return read


@pytest.mark.parametrize("examples", [6, pytest.param(in_part(60), marks=pytest.mark.slow)])
def test_lines_and_counters_are_the_same_whichever_way_a_history_comes(examples: int) -> None:
    @settings(COMMON, max_examples=examples)
    @given(st.lists(calls, min_size=20, max_size=80), st.sampled_from([3, 10, 200]))
    def run(history: list[tuple[str, str, int, float]], size: int) -> None:
        lines_and_counters_are_the_same(history, size)

    run()


def lines_and_counters_are_the_same(history: list[tuple[str, str, int, float]], size: int) -> None:
    store = MemoryStore()
    life = RecordedService(store)
    for call in history:
        life.call(*call)
    _forget(life, store)
    writes = [to_the_second(write) for write in life.stream.taken()]

    direct, streamed = Books(), Books()
    for start in range(0, len(writes), size):
        batch = writes[start : start + size]
        assert direct.record(batch) == streamed.record(of_stream(batch))
        assert direct.recording.position(SHARD) == streamed.recording.position(SHARD)

    assert direct.all() == streamed.all()


def _forget(life: RecordedService, store: MemoryStore) -> None:
    """Let the store remove what is past its retention, and what is left of spent tasks."""
    for task in store._tasks.values():  # noqa: SLF001  what is spent nobody lists
        if task.spent is not None or task.state in (State.SUCCEEDED, State.DEAD):
            life.stream.note(task, None, forgotten=True)
