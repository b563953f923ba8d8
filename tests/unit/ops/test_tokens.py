"""Many services share one rate: at least nine tenths of it goes out, and never more than it.

A simulation: each service is the real code with a memory of its own, over one store, on one clock.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.queue import (
    DequeuingSettings,
    IntervalUnit,
    Queue,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.rate import Bucket, Draw, Rate
from headrace.ops.shared.limiting import Tokens
from headrace.store.memory import MemoryStore
from tests.manual_clock import ManualClock

HOURLY = RateLimiting(12, 1, IntervalUnit.HOURS)


def limited(rate: RateLimiting, clock: ManualClock, name: str = "mail") -> Queue:
    """Return a queue with this rate limit."""
    settings = QueueSettings(dequeuing_settings=DequeuingSettings(rate_limiting=rate))
    return Queue(name, settings, clock(), clock())


class BucketCounter(MemoryStore):
    """Counts what is asked of buckets; some answers get lost, the write having taken effect."""

    def __init__(self, lost: float = 0.0) -> None:
        super().__init__()
        self.writes = self.reads = self.refused = 0
        self._lost, self._chance = lost, random.Random(7)

    def bucket(self, queue: str) -> Bucket | None:
        self.reads += 1
        return super().bucket(queue)

    def draw(self, queue: str, draw: Draw, *, seen: Bucket | None) -> tuple[Bucket | None, bool]:
        self.writes += 1
        if self._chance.random() < self._lost:
            super().draw(queue, draw, seen=seen)
            if self._chance.random() < 0.5:  # else the SDK sends it again
                message = "the answer is lost"
                raise Unavailable(message)
        there, made = super().draw(queue, draw, seen=seen)
        self.refused += not made
        return there, made


@dataclass(frozen=True)
class Load:
    """How services ask: each every so often (seconds), for so many; some of it is not used."""

    rate: RateLimiting
    services: int
    every: float
    batch: int
    lost: float = 0.0
    unused: float = 0.0
    seconds: float = 20.0


def simulated(load: Load) -> tuple[list[tuple[float, int]], BucketCounter]:
    """Return when how many tokens were used, and what it took."""
    clock, store, chance = ManualClock(), BucketCounter(load.lost), random.Random(11)
    queue, start = limited(load.rate, clock), clock()
    services = [Tokens(store, clock) for _ in range(load.services)]
    asks = sorted(
        (number * load.every + chance.random() * load.every, who)
        for who in range(load.services)
        for number in range(int(load.seconds / load.every))
    )
    used = []
    for at, who in asks:
        clock.forward((start + timedelta(seconds=at) - clock()).total_seconds())
        try:
            granted = services[who].take(queue, load.batch)
        except Unavailable:
            continue
        unused = sum(chance.random() < load.unused for _ in range(granted.count))
        services[who].release_unused(queue, granted, unused)
        used.append((at, granted.count - unused))
    return used, store


def exceeds(used: list[tuple[float, int]], rate: RateLimiting) -> bool:
    """Whether more was used in some window than a bucket and what flows in meanwhile."""
    per_second = rate.max_tokens / Rate.of(rate).interval.total_seconds()
    level, before = float(rate.max_tokens), 0.0
    for at, count in used:  # full at the start, as it ever is at most
        level = min(rate.max_tokens, level + (at - before) * per_second) - count
        before = at
        if level < -1e-6 * rate.max_tokens:
            return True
    return False


def loads() -> Iterator[Load]:
    for services in (1, 4, 16, 64):
        yield Load(RateLimiting(20, 1), services, every=0.05 * services, batch=3)
        yield Load(RateLimiting(20, 1), services, every=0.25, batch=25)
        yield Load(RateLimiting(500, 1), services, every=0.02 * services**0.5, batch=25)
        yield Load(RateLimiting(1000, 10), services, every=0.1, batch=1 + 9 // services)
        yield Load(HOURLY, services, every=60.0, batch=5, seconds=3 * 3600)


QUICK = 4  # services


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(load, marks=[] if load.services == QUICK else [pytest.mark.slow])
        for load in loads()
    ],
    ids=str,
)
def test_any_number_of_services_use_nine_tenths_of_the_rate_and_never_more(load: Load) -> None:
    used, _ = simulated(load)

    count = sum(tokens for _, tokens in used)
    per_second = load.rate.max_tokens / Rate.of(load.rate).interval.total_seconds()
    requested = load.services * load.batch * int(load.seconds / load.every)
    assert count >= 0.9 * min(requested, load.rate.max_tokens + per_second * load.seconds)
    assert not exceeds(used, load.rate)


@pytest.mark.parametrize(
    "services", [QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 16, 64))]
)
@pytest.mark.parametrize("rate", [RateLimiting(20, 1), RateLimiting(500, 1)], ids=str)
def test_lost_answers_and_lost_races_take_a_little_and_add_nothing(
    rate: RateLimiting, services: int
) -> None:
    load = Load(rate, services, every=0.03 * services**0.5, batch=25, lost=0.02, unused=0.05)

    used, _ = simulated(load)

    count = sum(tokens for _, tokens in used)
    assert count >= 0.9 * (rate.max_tokens + rate.max_tokens * load.seconds)
    assert not exceeds(used, rate)


def test_a_busy_service_writes_to_the_bucket_ten_times_a_second_not_with_each_call() -> None:
    load = Load(RateLimiting(10_000, 1), 8, every=0.002, batch=2, seconds=3)

    used, store = simulated(load)

    assert sum(tokens for _, tokens in used) == 8 * 1500 * 2
    before_it_knows = 0.1 / load.every
    assert store.writes <= 8 * (before_it_knows + 3 * 12)


def test_a_bucket_known_to_be_empty_is_not_asked() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue, tokens = limited(RateLimiting(2, 10), clock), Tokens(store, clock)
    assert tokens.take(queue, 5).count == 2
    store.writes = store.reads = 0

    waits = []
    for _ in range(9):
        clock.forward(0.1)
        waits.append(round(tokens.take(queue, 5).wait, 6))

    assert waits == [4.9, 4.8, 4.7, 4.6, 4.5, 4.4, 4.3, 4.2, 4.1]
    assert (store.writes, store.reads) == (0, 0)


def test_a_service_that_was_refused_looks_before_it_writes_again() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue = limited(RateLimiting(1, 1), clock)
    services = [Tokens(store, clock) for _ in range(16)]
    for _ in range(10):
        for service in services:
            service.take(queue, 1)
        clock.forward(1)

    assert store.refused <= 16


def test_rare_tokens_that_nobody_used_are_there_for_others() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue = limited(HOURLY, clock)
    ada, bob = Tokens(store, clock), Tokens(store, clock)

    granted = ada.take(queue, 12)
    assert bob.take(queue, 1).count == 0
    ada.release_unused(queue, granted, 5)
    clock.forward(1)

    assert [service.take(queue, 12).count for service in (bob, ada)] == [5, 0]


def test_rare_tokens_given_back_once_others_drew_are_kept_for_oneself() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue = limited(HOURLY, clock)
    ada, bob = Tokens(store, clock), Tokens(store, clock)

    granted = ada.take(queue, 6)
    bob.take(queue, 6)
    ada.release_unused(queue, granted, 2)
    clock.forward(1)

    assert [service.take(queue, 12).count for service in (bob, ada)] == [0, 2]


def test_a_new_rate_holds_at_once_also_where_the_old_one_is_still_believed() -> None:
    clock, store = ManualClock(), BucketCounter()
    old = limited(HOURLY, clock)
    ada, bob = Tokens(store, clock), Tokens(store, clock)
    assert ada.take(old, 25).count == 12
    clock.forward(5)
    new = replace(
        limited(RateLimiting(10, 1), clock), created_at=old.created_at, updated_at=clock()
    )

    assert ada.take(new, 25).count == 0  # as empty as it was
    clock.forward(1)
    assert bob.take(old, 4).count == 4  # by settings that are out of date
    assert ada.take(new, 25).count == 6
    assert bob.take(old, 25).count == 0


def test_a_bucket_forgotten_is_full_again() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue, tokens = limited(HOURLY, clock), Tokens(store, clock)
    tokens.take(queue, 12)

    tokens.forget(queue.name)

    assert tokens.take(queue, 25).count == 12


def test_what_it_waits_for_is_told_without_taking_anything() -> None:
    clock, store = ManualClock(), BucketCounter()
    queue, tokens = limited(HOURLY, clock), Tokens(store, clock)

    assert tokens.wait_seconds(queue) == 0
    tokens.take(queue, 12)
    assert tokens.wait_seconds(queue) == 300
    assert Tokens(store, clock).take(queue, 1).wait == 300
