"""How fast a job goes: one rate for all its readers, and few looks while nothing comes."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.spark.sources.rate_limit import RateLimiter
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.stream import QueueStream
from headrace.store.sqlite import SqliteStore
from tests.pipeline.harness import PipelineHarness


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


@pytest.mark.parametrize("slots", [2, 17])
def test_a_rate_is_one_for_the_whole_job_however_many_shards_and_slots(slots: int) -> None:
    """Seventeen shards of 100 tasks each, of which so many are read at a time."""
    shared, clocks = SqliteStore(":memory:"), [Clock() for _ in range(slots)]
    left = [100] * 17
    paces = [
        RateLimiter(200.0, shared, "lsg_a", clock.now, clock.sleep, lambda low, _: low)
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
