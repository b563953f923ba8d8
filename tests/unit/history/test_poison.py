"""Whatever a record of the stream holds, the recorder goes on: no single one stops a shard."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import recorder
from headrace.history.changelog import Changelog
from headrace.runtime.wiring import using
from headrace.store.lake import FolderLake
from headrace.store.sqlite import SqliteStore
from tests.contract.test_recording import AT_ONCE, Recorder, new_recorder, worked
from tests.invocation import InvocationContext
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, stream_records

CONTEXT: Any = InvocationContext("Recorder", 60)
GONE = object()
ODD: list[Any] = [
    GONE,
    None,
    5,
    {"S": ""},
    {"S": "a#ENQUEUED#x"},
    {"S": "{"},
    {"N": "1e400"},
    {"N": "NaN"},
    {"L": [None]},
]


@pytest.fixture
def it(tmp_path: Path) -> Recorder:
    made = new_recorder(SqliteStore(":memory:"), ManualClock())
    made.world.use.recording.changelog = Changelog(FolderLake(tmp_path), ("*",))
    return made


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: "gone" if odd is GONE else str(odd))
def test_every_attribute_of_a_task_may_be_anything(it: Recorder, odd: Any) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    it.world.put(queue, "{}", dedupe_key="k", tags={"a": "b"})
    whole = stream_records(it.stream.taken())
    spoilt = [
        change
        for record in whole
        for image in ("NewImage", "OldImage")
        for name in record["dynamodb"].get(image) or ()
        for change in [deepcopy(record)]
        if _spoil(change["dynamodb"][image], name, odd)
    ]
    for number, record in enumerate([*spoilt, *whole], start=1):
        record["dynamodb"]["SequenceNumber"] = str(number)

    with using(it.world.use):
        answer = recorder.handler({"shardId": SHARD, "Records": [*spoilt, *whole]}, CONTEXT)

    assert answer == {"batchItemFailures": [], "state": {}}
    assert it.world.use.recording.position(SHARD) == len(spoilt) + len(whole)


def _spoil(image: dict[str, Any], name: str, odd: Any) -> bool:
    if odd is GONE:
        del image[name]
    else:
        image[name] = odd
    return True
