"""What each write of a member means to the batch that counts it."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.domain.batch import BatchDelta
from headrace.domain.operate import BulkAction
from headrace.history.batch_recounting import batch_deltas
from headrace.ops.delivery.reports import ReportStatus
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import Streamed

NUMBERS = ("direct", "created", "live", "succeeded", "dead", "deleted", "deaths")
Deed = Callable[["CountingWorld", str], object]


class CountingWorld(World):
    """A service with a batch, whose stream is looked at write by write."""

    store: Any

    def deltas(self) -> list[BatchDelta]:
        """What the writes since the last call mean to the batch."""
        found = [pair for write in self.store.taken() for pair in batch_deltas(write)]
        assert {batch for batch, _ in found} <= {self.use.task_batches.get("b").key}
        return [delta for _, delta in found]

    def counted(self) -> dict[str, int]:
        """Those, added up; numbers that do not change are left out."""
        total = BatchDelta()
        for delta in self.deltas():
            total.merge(delta)
        return {name: getattr(total, name) for name in NUMBERS if getattr(total, name)}

    def delete(self, task_id: str, undo_in_seconds: int = 0) -> str | None:
        done = self.use.bulk.by_ids(
            "mail", BulkAction.DELETE, [task_id], undo_in_seconds=undo_in_seconds
        )
        return done.undo.id if done.undo else None

    def deliver(self, status: ReportStatus, **more: Any) -> None:
        self.clock.forward(1)
        [task] = self.take("mail")
        assert self.say(task, status, **more).outcome == "OK"


@pytest.fixture
def world() -> CountingWorld:
    clock = ManualClock()
    made = new_world(Streamed(MemoryStore(), clock).store, clock)
    world = CountingWorld(made.store, made.clock, made.use)
    world.queue("mail")
    world.use.task_batches.create({}, batch_id="b")
    return world


def member(world: CountingWorld) -> str:
    [task_id] = world.put("mail", batches=("b",))
    return task_id


def test_a_birth_is_a_live_member_that_is_named(world: CountingWorld) -> None:
    task_id = member(world)

    [delta] = world.deltas()

    assert (delta.direct, delta.created, delta.live, delta.moves) == (1, 1, 1, 0)
    assert (delta.born, delta.queues, delta.owed) == ([task_id], ["mail"], 0)


def test_a_delivery_changes_nothing(world: CountingWorld) -> None:
    member(world)
    world.deltas()
    world.clock.forward(1)

    world.take("mail")

    assert world.deltas() == []


@pytest.mark.parametrize(
    ("status", "counted"),
    [
        (ReportStatus.SUCCEEDED, {"live": -1, "succeeded": 1}),
        (ReportStatus.FAILED, {"live": -1, "dead": 1, "deaths": 1}),
    ],
)
def test_an_end_moves_a_member(
    world: CountingWorld, status: ReportStatus, counted: dict[str, int]
) -> None:
    member(world)
    world.deltas()

    more = {"retryable": False} if status is ReportStatus.FAILED else {}
    world.deliver(status, **more)

    assert world.counted() == counted


@pytest.mark.parametrize("undo_in_seconds", [0, 60])
def test_a_live_member_that_is_deleted_counts_as_that(
    world: CountingWorld, undo_in_seconds: int
) -> None:
    task_id = member(world)
    world.deltas()

    world.delete(task_id, undo_in_seconds)

    assert world.counted() == {"live": -1, "deleted": 1}


def test_its_undo_makes_it_live_again(world: CountingWorld) -> None:
    task_id = member(world)
    undo = world.delete(task_id, 60)
    world.deltas()

    world.use.undoing.undo(str(undo))
    [delta] = world.deltas()

    assert (delta.live, delta.deleted, delta.moves) == (1, -1, 1)
    assert (delta.created, delta.direct, delta.born) == (0, 0, [])


@pytest.mark.parametrize("status", [ReportStatus.SUCCEEDED, ReportStatus.FAILED])
def test_one_that_had_ended_stays_counted_so_deleted_and_brought_back(
    world: CountingWorld, status: ReportStatus
) -> None:
    task_id = member(world)
    world.deliver(status, **({"retryable": False} if status is ReportStatus.FAILED else {}))
    world.deltas()

    undo = world.delete(task_id, 60)
    world.use.undoing.undo(str(undo))

    assert world.deltas() == []


def test_what_is_forgotten_while_it_is_hidden_is_not_counted_again(world: CountingWorld) -> None:
    task_id = member(world)
    world.delete(task_id, 60)
    world.deltas()
    world.clock.forward(120)

    world.put("mail", id=task_id)  # in whose way it was

    assert world.deltas() == []


def test_a_restart_takes_an_end_back(world: CountingWorld) -> None:
    task_id = member(world)
    world.deliver(ReportStatus.FAILED, retryable=False)
    world.deltas()

    world.use.bulk.by_ids("mail", BulkAction.RESTART, [task_id])
    [delta] = world.deltas()

    assert (delta.live, delta.dead, delta.deaths, delta.revived) == (1, -1, 0, [task_id])
