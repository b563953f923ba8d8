"""Payloads, results and progress over a size are kept elsewhere: only the bill shows it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.operate import BulkAction
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DeadReason, State
from headrace.ops.shared.jobs import ORPHAN_AGE, ROUND
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.call_scope import metered
from headrace.store.dynamo.stream import writes_of
from headrace.store.objects import MemoryObjects
from tests.contract.conftest import World
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed, stream_records

MOST = 1024
SMALL = '{"small": true}'
LARGE = '{"large": "' + "é" * MOST + '"}'


@dataclass
class Objects(MemoryObjects):
    """Objects that count what is asked of them, and that may be away."""

    away: bool = False
    asked: list[tuple[str, int]] = field(default_factory=list)

    def put(self, contents: Mapping[str, bytes]) -> None:
        self._ask("put", len(contents))
        super().put(contents)

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        self._ask("get", len(names))
        return super().get(names)

    def drop(self, names: Collection[str]) -> None:
        self._ask("drop", len(names))
        super().drop(names)

    def _ask(self, what: str, number: int) -> None:
        if self.away:
            raise Unavailable("the objects are away")
        self.asked.append((what, number))

    def names(self) -> list[str]:
        return [one.name for one in self.list("", 1000)]

    def spoil(self) -> None:
        """Change every object by a byte."""
        super().put({name: b"[" + text[1:] for name, text in super().get(self.names()).items()})


@dataclass
class OffloadWorld(World):
    """A service that keeps large texts in ``objects``."""

    objects: Objects
    streamed: Streamed

    def record(self) -> None:
        """Let the recorder see what was written, as DynamoDB's stream shows it."""
        writes, unreadable = writes_of(stream_records(self.streamed.taken()))
        assert not unreadable
        assert self.use.recording.record(SHARD, writes).unreadable == ()


def offload_world(store: Store, clock: ManualClock) -> OffloadWorld:
    objects, streamed = Objects(clock), Streamed(store, clock)
    settings = Settings(admin_key="test", poll_after_seconds=0.02, payload_offload_bytes=MOST)
    use = build(settings, streamed.store, now=clock, objects=objects)
    use.sleep = clock.forward
    use.deliveries.arrivals = None
    world = OffloadWorld(streamed.store, clock, use, objects, streamed)
    world.queue()
    return world


@pytest.fixture
def world(store: Store, clock: ManualClock) -> OffloadWorld:
    return offload_world(store, clock)


# -- what is kept where --------------------------------------------------------------------------


@pytest.mark.gate
def test_a_large_payload_is_delivered_as_it_came_in(world: OffloadWorld) -> None:
    small, large = world.put("mail", SMALL, LARGE)

    stored = world.store.read([small, large])
    assert stored[small].payload == SMALL
    assert stored[large].payload is None
    assert stored[large].offloaded["payload"].bytes == len(LARGE.encode())
    assert [task.payload for task in world.take("mail", 2)] == [SMALL, LARGE]
    assert world.objects.asked == [("put", 1), ("get", 1)]


def test_a_task_keeps_its_payload_through_retries_moves_and_restarts(world: OffloadWorld) -> None:
    world.queue("post")
    retry = RetryStrategy(max_retries=1, base_seconds=0)
    (task_id,) = world.put("mail", LARGE, retry=retry)
    world.say(world.one("mail"), "FAILED")
    world.say(world.one("mail"), "MOVED", to_queue="post")
    world.say(world.one("post"), "FAILED", retryable=False)
    world.record()
    world.use.bulk.by_ids("post", BulkAction.RESTART, [task_id])

    assert world.one("post").payload == LARGE
    assert len(world.objects.names()) == 1


def test_counts_and_reasons_ask_for_no_payload(world: OffloadWorld) -> None:
    (task_id,) = world.put("mail", LARGE)
    world.objects.asked.clear()
    world.use.inspect.count("mail")
    world.use.explain.reasons(world.see(task_id))
    world.use.reaping.run()

    assert world.objects.asked == []


# -- what goes wrong -----------------------------------------------------------------------------


def test_without_the_objects_nothing_large_is_enqueued_and_all_else_goes_on(
    world: OffloadWorld,
) -> None:
    world.objects.away = True
    with pytest.raises(Unavailable):
        world.put("mail", LARGE)

    assert world.use.inspect.count("mail").count == 0
    world.put("mail", SMALL)
    assert world.one("mail").payload == SMALL


def test_without_the_objects_deliveries_go_back_and_no_attempt_is_used(
    world: OffloadWorld,
) -> None:
    large, _ = world.put("mail", LARGE, SMALL)
    world.objects.away = True
    assert [task.payload for task in world.take("mail", 2)] == [SMALL]
    with pytest.raises(Unavailable):
        world.take("mail")

    waits = world.see(large)
    assert (waits.state, waits.attempts) == (State.ENQUEUED, 0)
    world.objects.away = False
    assert world.one("mail").payload == LARGE


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_payload_that_is_not_what_it_was_ends_its_task(world: OffloadWorld, how: str) -> None:
    lost, _ = world.put("mail", LARGE, SMALL)
    if how == "changed":
        world.objects.spoil()
    else:
        world.objects.drop(world.objects.names())

    assert [task.payload for task in world.take("mail", 2)] == [SMALL]
    dead = world.see(lost)
    assert (dead.state, dead.dead_reason) == (State.DEAD, DeadReason.REJECTED)
    assert dead.errors[-1].type == "PayloadLost"
    with pytest.raises(Unavailable, match="payload of task"):
        world.use.texts.shown(dead)
    assert world.use.texts.shown(dead, payload=False).payload is None


# -- what is left over ---------------------------------------------------------------------------


def test_orphans_go_after_a_day_and_nothing_else_does(world: OffloadWorld) -> None:
    world.put("mail", LARGE, expires_at=None)
    world.objects.put({"tsk_gone/1": b"x", f"{world.put('mail', SMALL)[0]}/2": b"y"})
    world.use.reaping.run()
    assert len(world.objects.names()) == 3
    world.clock.forward((ORPHAN_AGE + ROUND).total_seconds())

    world.use.reaping.run()
    assert len(world.objects.names()) == 1


# -- what it costs -------------------------------------------------------------------------------


def payload_of(kilobytes: int) -> str:
    return f'"{"x" * (kilobytes * 1024 - 2)}"'


@pytest.mark.units
def test_the_life_of_a_large_payload_costs_what_that_of_a_small_one_does(
    world: OffloadWorld,
) -> None:
    costs: dict[int, list[float]] = {}
    for kilobytes in (1, 200):
        calls: list[float] = []
        payload = payload_of(kilobytes)[: -1 if kilobytes > 1 else -400] + '"'

        def measure(call: Any) -> Any:
            with metered() as meter:
                answer = call()
            calls.append(meter.write)  # noqa: B023  called at once
            return answer

        measure(lambda: world.put("mail", payload))  # noqa: B023  likewise
        task = measure(lambda: world.one("mail"))
        measure(lambda: world.say(task, "INFLIGHT"))  # noqa: B023  likewise
        measure(lambda: world.say(task, "SUCCEEDED"))  # noqa: B023  likewise
        costs[kilobytes] = calls

    assert costs[200] == costs[1]
    enqueue, dequeue, heartbeat, settle = costs[200]
    assert heartbeat == 1
    assert enqueue + dequeue + settle <= 8
    assert sum(costs[200]) <= 10
