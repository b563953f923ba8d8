"""Metrics of long ago: from the lake's series, joined to what the service still keeps itself."""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.transitions import Event, Happening
from headrace.history.series import SPAN, Span, content_of, file_of, minute_of, put_together
from headrace.history.tally import Activity
from headrace.store.lake import FolderLake
from headrace.testing.clock import ManualClock
from headrace.testing.service import MemoryService

NOW = datetime.fromisoformat("2026-11-21T12:34:56+00:00")
TODAY = NOW.date()


class LakeService:
    """A service with queue ``mail``, and a lake whose series a test writes by itself."""

    def __init__(self, folder: Path) -> None:
        self.lake = FolderLake(folder)
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
    assert len(client.get_metrics("mail").points) == 60


def test_a_file_that_cannot_be_read_is_named(world: LakeService) -> None:
    broken = b"no gzip"
    world.span(40, 1)
    name = file_of("mail", world.day(20))
    world.lake.put(name, broken)

    with pytest.raises(Unavailable, match="cannot be read; headrace lake rollup --all") as caught:
        world.points(20, 19, 3_600)

    assert name in str(caught.value)
    world.lake.put(SPAN, broken)
    with pytest.raises(Unavailable, match=r"span\.json cannot be read"):
        world.points(20, 19, 3_600)
