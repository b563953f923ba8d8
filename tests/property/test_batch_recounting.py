"""Whatever the recorder loses or comes to late, a recount calls nothing back early or twice.

Members come, make others and end, while two shards of the log are read, lost or left for later,
and recounts begin, go on and end in between.  Nobody restarts: without that a batch that has missed
something is never early by itself, so that whatever is early is the recount's fault.
"""

from collections.abc import Callable
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.plan import TaskSpec
from headrace.domain.task import FINISHED
from headrace.domain.write import TaskWrite
from headrace.store.base import Store
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.stores import STORES, everything
from tests.property.walks import in_part
from tests.streamed import Streamed

TOTAL = 3
CHILD = (("work", TaskSpec("1", batches=("b",))),)
DO = ("put", "succeed", "fail", "spawn", "record", "lose", "minute", "settle", "step", "recount")


class Story:
    """One batch, its members, and what is to be read of each shard of the log."""

    def __init__(self, store: Store) -> None:
        self.clock, self.store = ManualClock(), store
        self.stream = Streamed(store, self.clock)
        self.world = new_world(self.stream.store, self.clock)
        self.use = self.world.use
        self.use.batch_recounting.patience = -1
        for queue in ("work", "told"):
            self.world.queue(queue)
        on = {event: Callback("told", TaskSpec(f'"{event}"')) for event in BatchEvent}
        self.use.task_batches.create(on, batch_id="b", total=TOTAL)
        self.pending: list[list[TaskWrite]] = [[], []]
        self.made = self.spawned = 0
        self.cursor: str | None = None
        self.told: list[str] = []

    def do(self, what: str, shard: int) -> None:
        if what == "put" and self.made < TOTAL:
            self.world.put("work", batches=("b",))
            self.made += 1
        elif what == "succeed":
            self.end("SUCCEEDED")
        elif what == "fail":
            self.end("FAILED", retryable=False)
        elif what == "spawn" and self.spawned < TOTAL:
            self.spawned += self.end("SUCCEEDED", spawn=CHILD)
        elif what in {"record", "lose"}:
            self.read(shard, lost=what == "lose")
        elif what in {"minute", "settle"}:
            self.clock.forward(60 if what == "minute" else 600)
            self.use.recording.counters.post_left()
        elif what == "step":
            self.cursor = self.use.batch_recounting.step("b", self.cursor).cursor
        elif what == "recount":
            self.recount()
        self.look()

    def end(self, status: str, **fields: object) -> int:
        tasks = list(self.world.take("work", 1))
        for task in tasks:
            self.world.say(task, status, **fields)
        return len(tasks)

    def read(self, shard: int, *, lost: bool = False) -> None:
        for write in self.stream.taken():
            side = write.after or write.before
            assert side is not None
            self.pending[crc32(side.id.encode()) % 2].append(write)
        some, self.pending[shard] = self.pending[shard], []
        if not lost:
            self.use.recording.record(f"shard-{shard}", some)

    def recount(self) -> str | None:
        step = self.use.batch_recounting.step("b")
        while step.cursor is not None:
            step = self.use.batch_recounting.step("b", step.cursor)
        return step.refusal

    def look(self) -> None:
        """Check that what is called back is true, and was not before."""
        for task in list(self.world.take("told", 25)):
            self.told.append(str(task.payload))
            self.world.say(task, "SUCCEEDED")
        assert len(set(self.told)) == len(self.told)
        members = [task for task in everything(self.store) if "b" in task.batch_ids]
        ended = all(task.state in FINISHED for task in members)
        if set(self.told) - {'"failed"'} or self.use.task_batches.get("b").finished_at:
            assert self.made == TOTAL
            assert ended


@pytest.mark.parametrize("examples", [6, pytest.param(in_part(60), marks=pytest.mark.slow)])
@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_whatever_is_lost_or_late_nothing_is_called_back_early_or_twice(
    store: Callable[[], Store], examples: int
) -> None:
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(what=st.lists(st.tuples(st.sampled_from(DO), st.integers(0, 1)), max_size=40))
    def run(what: list[tuple[str, int]]) -> None:
        nothing_is_called_back_early_or_twice(Story(store()), what)

    run()


def nothing_is_called_back_early_or_twice(story: Story, what: list[tuple[str, int]]) -> None:
    for step in what:
        story.do(*step)
    while story.made < TOTAL:
        story.do("put", 0)
    while story.end("SUCCEEDED"):
        pass
    story.do("settle", 0)
    assert story.recount() is None or story.use.task_batches.get("b").counted_at is not None
    for shard in (0, 1):
        story.do("record", shard)  # all that was left for later
    story.do("settle", 0)

    assert story.recount() is None
    story.look()

    batch = story.use.task_batches.get("b")
    assert (batch.live, batch.created) == (0, TOTAL + story.spawned)
    assert batch.finished_at is not None
    assert '"ended"' in story.told
    assert ('"succeeded"' in story.told) == (batch.dead == 0)
