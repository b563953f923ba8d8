"""What every store promises about batches that are counted anew, whatever the recorder has lost."""

import pytest

from headrace.domain.batch import BatchEvent
from headrace.history.recounting import RecountedBatch
from headrace.store.base import Store
from tests.contract.test_batches import BARE, Recorded, numbers
from tests.manual_clock import ManualClock

ENDED, SUCCEEDED, FAILED = BatchEvent.ENDED, BatchEvent.SUCCEEDED, BatchEvent.FAILED


class Lossy(Recorded):
    """A service whose log may get lost before the recorder reads it."""

    def lose(self) -> None:
        self.stream.taken()

    def settle(self) -> None:
        self.clock.forward(600)

    def recount(self) -> RecountedBatch:
        step = self.use.batch_recounting.step("b")
        while step.cursor is not None:
            step = self.use.batch_recounting.step("b", step.cursor)
        return step


@pytest.fixture
def lossy(store: Store, clock: ManualClock) -> Lossy:
    return Lossy(store, clock)


@pytest.mark.gate
def test_a_batch_whose_changes_were_lost_ends_after_all(lossy: Lossy) -> None:
    lossy.use.batch_recounting.patience = -1.0  # many steps
    lossy.batch(ENDED, SUCCEEDED, FAILED, total=3)
    lossy.world.put("work", "1", "2", "3", batches=("b",))
    lossy.record()
    lossy.finish(2)
    (dead,) = lossy.finish(1, status="FAILED", retryable=False)
    lossy.lose()
    lossy.settle()

    found = lossy.recount()

    assert (found.refusal, found.was.succeeded) == (None, 0)
    assert numbers(lossy.see()) == (3, 0, 2, 1, 0)
    assert lossy.see().dead_ids == (dead.id,)
    assert {task.payload for task in lossy.told()} == {'"ended"', '"failed"'}


def test_members_that_are_not_kept_are_not_guessed(lossy: Lossy) -> None:
    lossy.world.use.queues.delete("work")
    lossy.clock.forward(60)
    lossy.world.queue("bare", **BARE)
    lossy.batch(total=2)
    gone, _ = lossy.world.put("bare", "1", "2", batches=("b",))
    lossy.use.tasks.delete(gone)
    for task in lossy.world.take("bare", 1):
        lossy.world.say(task, "SUCCEEDED")
    lossy.lose()
    lossy.settle()
    before = lossy.see()

    assert "1 of the total of 2" in str(lossy.recount().refusal)

    assert lossy.see() == before
    lossy.use.task_batches.close("b", 1)  # whoever knows better may say so
    assert lossy.recount().refusal is None
    assert len(lossy.told()) == 1
