"""Metrics of long ago: from the lake's series, joined to what the service still keeps itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.history.series import SPAN, Span, content_of, file_of, minute_of, put_together
from headrace.history.tally import Activity
from headrace.history.transitions import Event, Happening
from headrace.store.base import LakeObject
from headrace.store.lake import FolderLake
from headrace.testing.conditions import ManualClock
from headrace.testing.service import MemoryService

NOW = datetime.fromisoformat("2026-11-21T12:34:56+00:00")
TODAY = NOW.date()


@dataclass
class CountingLake:
    """A folder that counts which files are read."""

    folder: Path
    reads: Counter[str] = field(default_factory=Counter)

    def put(self, name: str, content: bytes) -> None:
        FolderLake(self.folder).put(name, content)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        self.reads[name] += 1
        return FolderLake(self.folder).get(name, within)

    def list(self, prefix: str) -> Sequence[LakeObject]:
        return FolderLake(self.folder).list(prefix)


class LakeService:
    """A service with queue ``mail``, and a lake whose series a test writes by itself."""

    def __init__(self, folder: Path) -> None:
        self.lake = CountingLake(folder)
        self.service = MemoryService(clock=ManualClock(NOW), lake=self.lake)
        self.service.client.create_queue("mail")

    def day(self, ago: int) -> date:
        return TODAY - timedelta(days=ago)

    def span(self, first_ago: int, last_ago: int) -> None:
        span = Span(self.day(first_ago), self.day(last_ago) + timedelta(days=1))
        self.lake.put(SPAN, span.text())

    def rolled(self, ago: int, minutes: dict[int, Activity], queue: str = "mail") -> None:
        """Write the series of a day; *minutes* are counted from its beginning."""
        first = minute_of(self.day(ago))
        found = {first + minute: activity for minute, activity in minutes.items()}
        content = put_together([(queue, content_of(found))])
        self.lake.put(file_of(queue, self.day(ago)), content)

    def started(self, since: float, until: float, step: int) -> list[int | None]:
        """Return deliveries by step, from and until so many days ago, at midnight."""
        return [point.started for point in self.points(since, until, step)]

    def points(self, since: float, until: float, step: int) -> list[Any]:
        midnight = datetime.fromisoformat(f"{TODAY}T00:00:00+00:00")
        begin, end = (midnight - timedelta(days=ago) for ago in (since, until))
        client = self.service.client
        return client.get_metrics("mail", from_=begin, to=end, step_seconds=step).points


@pytest.fixture
def world(tmp_path: Path) -> LakeService:
    return LakeService(tmp_path / "lake")


def deliveries(*waits: float) -> Activity:
    """Return as many deliveries as *waits* (seconds)."""
    activity = Activity()
    for wait in waits:
        activity.add(Happening(Event.STARTED, "mail", 0, round(wait * 1_000_000)))
    return activity


def test_long_ago_comes_from_the_lake_and_a_day_without_a_file_is_an_idle_one(
    world: LakeService,
) -> None:
    world.span(40, 1)
    world.rolled(20, {0: deliveries(1), 725: deliveries(1, 2)})
    world.rolled(18, {1439: deliveries(3)})

    assert world.started(20, 17, 86_400) == [3, 0, 1]
    assert world.started(20, 19, 43_200) == [1, 2]


def test_days_that_are_not_rolled_up_are_missing_and_not_nothing(world: LakeService) -> None:
    world.span(20, 15)
    world.rolled(20, {0: deliveries(1)})

    assert world.started(22, 18, 86_400) == [None, None, 1, 0]
    points = world.points(15, 5, 86_400)

    assert [point.started for point in points] == [0, *[None] * 8, 0]  # the last not whole
    assert (points[1].enqueued, points[1].dead, points[1].wait_p50) == (None, None, None)


def test_without_a_lake_or_before_its_first_rollup_only_the_last_week_is_known(
    world: LakeService,
) -> None:
    alone = MemoryService(clock=ManualClock(NOW))
    alone.client.create_queue("mail")

    points = alone.client.get_metrics(
        "mail", from_=NOW - timedelta(days=10), step_seconds=86_400
    ).points

    assert [point.started for point in points] == [None, None, None, *[0] * 8]
    assert world.started(9, 5, 86_400) == [None, None, None, 0]


def test_what_the_service_still_keeps_wins_over_the_lake(world: LakeService) -> None:
    client = world.service.client
    client.enqueue("mail", {"n": 1})
    client.dequeue("mail")
    world.service.tick()
    world.span(20, -1)
    for ago in (0, 1, 20):
        world.rolled(ago, {minute: deliveries(9) for minute in range(0, 1440, 10)})

    assert world.started(20, 19, 86_400) == [144]
    assert world.started(1, -1, 86_400) == [0, 1]
    world.lake.reads.clear()
    assert len(client.get_metrics("mail").points) == 60
    assert not world.lake.reads  # what is kept costs no look at the lake


def test_percentiles_of_a_month_are_within_the_buckets_of_exact_ones(world: LakeService) -> None:
    world.span(40, 1)
    waits = [1.001**n for n in range(3_000)]
    for ago in range(10, 40):
        mine = waits[ago - 10 :: 30]
        world.rolled(ago, {n * 14: deliveries(*mine[n::100]) for n in range(100)})

    (point,) = world.points(40, 9, 31 * 86_400)

    assert point.started == 3_000
    assert point.wait_p50 == pytest.approx(waits[1_499], rel=0.025)
    assert point.wait_p99 == pytest.approx(waits[2_969], rel=0.025)


@pytest.mark.parametrize("broken", [b"", b"no gzip", b"{}"])
def test_a_file_that_cannot_be_read_is_named(world: LakeService, broken: bytes) -> None:
    world.span(40, 1)
    name = file_of("mail", world.day(20))
    world.lake.put(name, broken)

    with pytest.raises(Unavailable, match="cannot be read; headrace lake rollup --all") as caught:
        world.points(20, 19, 3_600)

    assert name in str(caught.value)
    world.lake.put(SPAN, broken)
    with pytest.raises(Unavailable, match=r"span\.json cannot be read"):
        world.points(20, 19, 3_600)
