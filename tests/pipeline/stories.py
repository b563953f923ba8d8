"""Change logs for tests: told by a service in memory with faults on, or line by line."""

import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from headrace.client import sending
from headrace.client.sending import Failure, NewTask, Report
from headrace.domain import ids
from headrace.domain.errors import LeaseLost
from headrace.domain.offload import Lake
from headrace.history.changelog import Changelog, Line
from headrace.testing.clock import ManualClock
from headrace.wire.tasks import LeasedTask
from tests.faults import FaultyService

START = 1_795_219_200_000_000  # 2026-11-21 00:00 UTC
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def at(hours: float = 0) -> datetime:
    """Return so many hours after the start."""
    return datetime.fromtimestamp((START + hours * HOUR) / SECOND, UTC)


def write(lake: Lake, lines: Iterable[Mapping[str, Any]]) -> None:
    """Bring *lines* to the lake as one batch."""
    Changelog(lake).write([dict(line) for line in lines])


class Story:
    """Writes the changes of tasks as the recorder would, a second for each."""

    def __init__(self, queue: str = "mail") -> None:
        self.queue = queue
        self.lines: list[Line] = []
        self.now = START
        self._last: dict[str, Line] = {}

    def wait(self, seconds: float) -> "Story":
        """Let time pass."""
        self.now += int(seconds * SECOND)
        return self

    def record(self, task: str, move: str, state: str | None, **to: Any) -> Line:
        """Let *task* come to *state*, None: gone; *to* is what differs from before."""
        last = self._last.get(task)
        alive = last is not None and "state_to" in last
        line: Line = {
            "format": 1,
            "shard": "s1",
            "sequence": str(len(self.lines) + 1),
            "recorded_at": self.now // SECOND * SECOND,
            "at": self.now,
            "task_id": task,
            "created_at": last["created_at"] if alive and last else self.now,
            "version": last["version"] + 1 if alive and last else 1,
            "move": move,
        }
        before: Line = {}
        if alive and last:
            before = {name[:-3]: value for name, value in last.items() if name.endswith("_to")}
            line |= {f"{name}_from": value for name, value in before.items()}
        if state is not None:
            after = {
                "queue": self.queue,
                "due": self.now,
                "enqueued": self.now,
                "attempts": 0,
                "hop": 0,
                **before,
                "state": state,
            }
            if state != "INFLIGHT":
                after.pop("lease", None)
                after.pop("lease_end", None)
            line |= {f"{name}_to": value for name, value in after.items()}
        line |= to
        self.lines.append(line)
        self._last[task] = line
        self.now += SECOND
        return line

    def enqueue(self, task: str, **to: Any) -> Line:
        return self.record(task, "enqueue", "ENQUEUED", **to)

    def dequeue(self, task: str, **to: Any) -> Line:
        last = self._last[task]
        given = {
            "attempts_to": last["attempts_to"] + 1,
            "lease_to": f"{task}-{last['version']}",
            "lease_end_to": self.now + 30 * SECOND,
            "started_at": self.now,
            "worker": "w1",
        }
        return self.record(task, "dequeue", "INFLIGHT", **{**given, **to})

    def report(self, task: str, move: str, state: str | None, **to: Any) -> Line:
        """Let the worker that has *task* report on it."""
        last = self._last[task]
        given = {
            "settled": last.get("lease_to"),
            "started_at": last.get("started_at"),
            "worker": "w1",
        }
        if state in ("SUCCEEDED", "DEAD"):
            given["finished_at"] = self.now
        if state is None:
            given.pop("settled")
        return self.record(task, move, state, **{**given, **to})


QUEUES: Mapping[str, Mapping[str, Any]] = {
    "work": {"retry_strategy": {"kind": "fixed", "base_seconds": 30, "max_retries": 2}},
    "next": {"history_retention_in_seconds": 0},
    "fleeting": {"expires_in_seconds": 100, "dead_letter_queue_config": {"enable": False}},
}


def true_history(lake: Lake, *, seed: int, rounds: int = 60) -> FaultyService:
    """Let a service in memory work with faults on, its changes going to *lake*; return it.

    The same *seed* gives the same history: ids too, by which tasks of one time are ordered.
    """
    chance = random.Random(seed)
    drawn = SimpleNamespace(randbits=chance.getrandbits, token_bytes=chance.randbytes)
    clock = ManualClock(at(23.5))
    with patch.object(ids, "secrets", drawn), patch.object(sending, "utc_now", clock):
        return _history(FaultyService(clock=clock, seed=seed, lake=lake), rounds)


def _history(service: FaultyService, rounds: int) -> FaultyService:
    for name, settings in QUEUES.items():
        service.client.create_queue(name, **settings)
    faults = service.faults
    with (
        faults.lose_answers(rate=0.1),
        faults.lose_requests(rate=0.05),
        faults.duplicate_delivery(rate=0.1),
        faults.lapse_leases(rate=0.05),
    ):
        for number in range(rounds):
            _round(service, number)
    service.tick()
    return service


def _round(service: FaultyService, number: int) -> None:
    """Do a few things that producers, workers and operators do, by the service's own chance."""
    client, chance = service.client, service.faults.chance
    queue = chance.choice(sorted(QUEUES))
    delay = chance.choice((None, None, 90))
    client.enqueue_many(
        queue,
        [
            NewTask(payload={"number": number}, delay_in_seconds=delay)
            for _ in range(chance.randint(0, 4))
        ],
    )
    group = client.open_lease().id if chance.random() < 0.2 else None
    taken: list[LeasedTask] = []
    with suppress(LeaseLost):  # a fault let time pass
        worker = f"w{number % 3}"
        taken = client.dequeue(queue, batch_size=4, worker=worker, lease_id=group).tasks
    service.forward(chance.choice((0, 1, 7)))
    for task in taken:
        _report(service, task)
    if group and chance.random() < 0.7:
        with suppress(LeaseLost):
            client.close_lease(group)
    if chance.random() < 0.3:
        actions = (client.delete_tasks, client.restart_tasks, client.run_tasks, client.cancel_tasks)
        chance.choice(actions)(queue, all=True)
    if chance.random() < 0.2:
        client.move_tasks(queue, _onward(queue), state="ENQUEUED")
    service.forward(chance.choice((0, 5, 40, 200)))


def _report(service: FaultyService, task: LeasedTask) -> None:
    chance = service.faults.chance
    say = chance.choice(("SUCCEEDED", "FAILED", "REJECTED", "RELEASED", "MOVED", "INFLIGHT", None))
    if say is None:
        return  # the worker is dead
    fields: dict[str, dict[str, Any]] = {
        "SUCCEEDED": {"result": 1},
        "FAILED": {"error": Failure("Timeout", f"{task.id} 31 s")},
        "REJECTED": {"retryable": False, "status": "FAILED"},
        "RELEASED": {"delay_in_seconds": 3},
        "MOVED": {"to_queue": _onward(task.queue)},
        "INFLIGHT": {},
    }
    given = {"task_id": task.id, "lease_id": task.lease.id, "status": say, **fields[say]}
    service.client.report(task.queue, [Report(**given)])


def _onward(queue: str) -> str:
    return "work" if queue == "next" else "next"
