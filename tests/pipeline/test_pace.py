"""How fast a job goes: one rate for all its readers, and few looks while nothing comes."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from benchmarks.spark.station import MOST_UNITS, life_units
from headrace.domain.queue import PrioritySettings, QueueSettings
from headrace.ops.delivery.shard_deliveries import ShardDeliveries
from headrace.runtime.wiring import Settings, build
from headrace.spark.sources.claims import GroupClaims
from headrace.spark.sources.pace import IdleLooks, SharedPace
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.stream import QueueStream
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.pipeline.harness import PipelineHarness


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


@pytest.mark.parametrize("slots", [1, 2, 17])
def test_a_rate_is_one_for_the_whole_job_however_many_shards_and_slots(slots: int) -> None:
    """Seventeen shards of 100 tasks each, of which so many are read at a time."""
    shared, clocks = MemoryStore(), [Clock() for _ in range(slots)]
    left = [100] * 17
    paces = [
        SharedPace(shared, "lsg_a", 200.0, clock.now, clock.sleep, lambda low, _: low)
        for clock in clocks
    ]
    reading = dict.fromkeys(range(slots), 0) | {slot: slot for slot in range(slots)}
    waiting = list(range(slots, 17))
    while reading:
        slot = min(reading, key=lambda one: clocks[one].seconds)
        shard = reading[slot]
        left[shard] -= paces[slot].next(min(500, left[shard]))
        if not left[shard]:
            reading.pop(slot)
            if waiting:
                reading[slot] = waiting.pop(0)

    assert left == [0] * 17
    assert max(clock.seconds for clock in clocks) == pytest.approx(1700 / 200, rel=0.01)


def test_what_was_not_there_to_be_leased_is_kept_for_the_next_shard() -> None:
    clock = Clock()
    pace = SharedPace(MemoryStore(), "lsg_a", 100.0, clock.now, clock.sleep)

    for _ in range(50):  # a shard that has one task and room for fifty
        allowed = pace.next(50)
        pace.back(allowed - 1)

    assert clock.seconds == pytest.approx(0.5)


def test_the_pace_of_a_batch_is_forgotten_with_it_and_is_no_page_of_claims() -> None:
    clock, shared = Clock(), MemoryStore()
    claims = GroupClaims(shared, "lsg_a")
    SharedPace(shared, "lsg_a", 1.0, clock.now, clock.sleep).next(9)

    pages = list(claims.every())
    claims.forget()

    assert pages == []
    assert list(claims._records()) == []  # noqa: SLF001 (nothing at all is left)


def test_looks_that_find_nothing_come_ever_later_until_one_finds_something() -> None:
    clock = Clock()
    looks = IdleLooks(5.0, lambda: clock.seconds)

    pauses = []
    for _ in range(5):
        looks.nothing(least=1.0)
        pauses.append(looks.wait)
        clock.sleep(looks.wait)
    looks.found()

    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert looks.wait == 0.0


class Counting:
    """A store that counts its queries."""

    def __init__(self, inner: object) -> None:
        self.inner, self.queries = inner, Counter[str]()

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self.inner, name)

        def counted(*given: object, **named: object) -> object:
            self.queries[name] += 1
            return call(*given, **named)

        return counted


@pytest.mark.parametrize("priority", [None, PrioritySettings()])
def test_an_idle_stream_makes_no_more_than_one_query_of_a_shard_in_a_second(
    priority: PrioritySettings | None,
) -> None:
    clock, counting = Clock(), Counting(MemoryStore())
    uses = build(Settings(), cast("Store", counting), now=clock.now)
    uses.queues.create("in", QueueSettings(shards=3, priority=priority))
    shards = ShardDeliveries(
        cast("Store", counting), uses.queues, uses.reaping, uses.deliveries, uses.leases, clock.now
    )
    looks = IdleLooks(5.0, lambda: clock.seconds)
    made: Counter[float] = Counter()
    while clock.seconds < 60:  # Spark asks a hundred times a second
        if not looks.wait:
            before = counting.queries["entries"]
            assert not shards.due("in")
            made[clock.seconds] = counting.queries["entries"] - before
            looks.nothing(least=shards.queries("in"))
        clock.sleep(0.01)

    assert 10 <= len(made) <= 14  # five seconds apart in the end
    for begin, end in pairwise(made):
        assert made[begin] <= 3 * (end - begin)


def test_a_stream_that_found_nothing_waits_before_it_looks_again(harness: PipelineHarness) -> None:
    clock = Clock()
    harness.queue("in")
    reading = QueueReading.of({"queue": "in", **harness.connection.options()}, stream=True)
    stream = QueueStream(reading, lambda: clock.seconds)
    start = stream.initialOffset()

    first = stream.latestOffset(start)
    harness.fill("in", 1)
    too_soon = stream.latestOffset(start)
    clock.sleep(0.05)
    later = stream.latestOffset(start)

    assert (first, too_soon) == (start, start)
    assert later != start
    stream.stop()


def test_the_life_of_a_task_in_a_station_costs_little_more_than_with_a_worker(
    tmp_path: Path,
) -> None:
    assert 7.5 < life_units(str(tmp_path), 500) <= MOST_UNITS
