"""What tasks fail of is counted at write time, by queue and fingerprint, each change once."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from headrace.domain.fingerprints import fingerprint
from headrace.domain.operate import BulkAction
from headrace.domain.task import State
from headrace.domain.times import micros_of
from headrace.domain.transitions import TaskFault
from headrace.history.faults import (
    FAULT_BYTES,
    KINDS,
    REST,
    FaultCount,
    QueueFaults,
    kinds_body,
)
from headrace.history.flows import by_hour
from headrace.ops.delivery.reports import WorkerError
from headrace.store.base import Store
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock

LATE = fingerprint("Late", "after 1 s")


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def fail(it: Recorder, queue: str, message: str = "after 1 s", *, retryable: bool = False) -> str:
    """Let a new task fail, and return its id."""
    (task_id,) = it.world.put(queue)
    error = WorkerError("Late", message)
    it.world.say(it.world.one(queue), "FAILED", error=error, retryable=retryable)
    return task_id


def faults(it: Recorder, queue: str = "mail") -> QueueFaults:
    counters = it.world.use.counters
    return counters.faults(queue, counters.buffers())


def standing(it: Recorder, queue: str = "mail") -> dict[str, tuple[int, int]]:
    kinds = faults(it, queue).kinds.items()
    return {name: (kind.dead, kind.retried) for name, kind in kinds if kind.stands}


def test_dead_and_tried_again_are_counted_by_queue_and_kind(it: Recorder) -> None:
    mail, sms = it.world.queue("mail"), it.world.queue("sms")
    began = it.world.clock()
    first = fail(it, mail, "after 1 s")
    it.world.clock.forward(400)
    last = fail(it, mail, "after 30 s", retryable=True)
    fail(it, mail, "never")
    fail(it, sms)

    it.record()

    never = fingerprint("Late", "never")
    assert standing(it, mail) == {LATE: (1, 1), never: (1, 0)}
    assert standing(it, sms) == {LATE: (1, 0)}
    late, now = faults(it, mail).kinds[LATE], micros_of(it.world.clock())
    assert (late.type, late.message, late.tasks) == ("Late", "after 30 s", (first, last))
    assert late.workers == ["ada:1"]
    assert late.first - micros_of(began) < 1_000_000
    assert late.last - late.first == 400_001_000
    assert sum(by_hour(late.slots, now)) == 2


def succeed(it: Recorder, task_id: str) -> None:
    it.world.clock.forward(timedelta(hours=2))
    it.world.say(it.world.one("mail"), "SUCCEEDED")


def move_on(it: Recorder, task_id: str) -> None:
    it.world.clock.forward(timedelta(hours=2))
    it.world.say(it.world.one("mail"), "MOVED", to_queue=it.world.queue("other"))


def act(action: BulkAction) -> Callable[[Recorder, str], object]:
    return lambda it, task_id: it.world.use.bulk.by_ids("mail", action, [task_id])


ENDS: dict[str, tuple[bool, Callable[[Recorder, str], object]]] = {
    "succeeds": (True, succeed),
    "moves on": (True, move_on),
    "is cancelled": (True, lambda it, task_id: it.world.use.cancelling.cancel(task_id)),
    "is deleted while it waits": (True, act(BulkAction.DELETE)),
    "is deleted": (False, act(BulkAction.DELETE)),
    "is restarted": (False, act(BulkAction.RESTART)),
    "is purged": (False, lambda it, _: it.world.use.queues.purge("mail", (State.DEAD,))),
    "is forgotten": (
        False,
        lambda it, task_id: it.stream.note(it.world.see(task_id), None, forgotten=True),
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_fault_stands_until_its_task(it: Recorder, end: str) -> None:
    retryable, act = ENDS[end]
    it.world.queue()
    task_id = fail(it, "mail", retryable=retryable)
    it.record()
    assert standing(it) == {LATE: (0, 1) if retryable else (1, 0)}

    act(it, task_id)
    it.record()

    assert standing(it) == standing(it, "other") == {}
    assert faults(it).kinds[LATE].last > 0  # but it is known when it was seen


def test_a_lease_that_lapses_and_a_task_that_expires_have_faults(it: Recorder) -> None:
    queue = it.world.queue(expires_in_seconds=100, keepalive_timeout_in_seconds=10)
    it.world.put(queue, "{}", "{}")
    it.world.one(queue)
    it.world.clock.forward(11)
    it.world.use.reaping.run()
    it.record()
    assert [kind[1] for kind in standing(it).values()] == [1]

    it.world.clock.forward(100)
    it.world.use.reaping.run()
    it.record()

    assert sorted(standing(it).values()) == [(1, 0), (1, 0)]
    assert standing(it)[fingerprint("", "expired")] == (1, 0)


# -- room --------------------------------------------------------------------------------------


def a_kind(number: int, dead: int = 1) -> tuple[str, FaultCount]:
    type_, message, samples = "Late" * 20, f"{number:04}" * 100, [f"tsk_{number}"]
    return f"{number:016x}", FaultCount(
        dead, 0, 1 + number, 1 + number, {1: 1}, type_, message, samples, ["ada"]
    )


def test_more_kinds_than_there_is_room_for_are_counted_together() -> None:
    faults = QueueFaults()
    faults.merge(dict(a_kind(number) for number in range(1000)), 0)

    assert len(faults.kinds) == KINDS + 1
    assert faults.kinds[REST].dead == 1000 - KINDS
    assert faults.dead == 1000

    gone = {name: FaultCount(dead=-1) for name, _ in map(a_kind, range(1000))}
    faults.merge(gone, 0)
    assert not any(kind.stands for kind in faults.kinds.values())
    assert REST not in faults.kinds


def test_texts_of_any_length_and_alphabet_are_cut() -> None:
    faults = [
        TaskFault(
            "f" * 16, dead=True, type=text * 600, message=text * 4000, task_id="t" * 64, worker=w
        )
        for text, w in (("x", "ada:1"), ("\u0645", "\u0645" * 100), ("\U0001f6b0", "w" * 70))
    ]
    count = FaultCount(dead=10**9, retried=10**9)
    for fault in faults:
        count.see(fault, 1_800_000_000_000_000, times=10**6)

    assert len(json.dumps(kinds_body({"": count}))) < FAULT_BYTES
    assert count.message.startswith("\U0001f6b0")
    assert count.workers == ["w" * 70, "ada:1"]
