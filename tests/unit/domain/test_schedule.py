"""Intervals of schedules, and what a change of a schedule keeps."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from headrace.domain.schedule import (
    Schedule,
    ScheduleSettings,
)
from headrace.domain.ticks import cron_ticks, interval_ticks, ticks
from headrace.ops.scheduling.cron import read_cron

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)  # a Saturday
MINUTE = timedelta(minutes=1)


def test_an_interval_counts_in_whole_microseconds() -> None:
    tenth = list(islice(interval_ticks(NOW, 1.1, NOW), 10))

    assert tenth[0] == NOW + timedelta(seconds=1.1)
    assert tenth[9] == NOW + timedelta(seconds=11)
    late = next(interval_ticks(NOW, 7, NOW + timedelta(days=365, microseconds=1)))
    assert (late - NOW) % timedelta(seconds=7) == timedelta()
    assert timedelta() < late - NOW - timedelta(days=365) <= timedelta(seconds=7)
    assert next(interval_ticks(NOW, 60, NOW + MINUTE)) == NOW + 2 * MINUTE
    assert next(interval_ticks(NOW, 60, NOW - timedelta(days=1))) == NOW + MINUTE


def schedule(**fields: object) -> Schedule:
    made = ScheduleSettings(**{"cron": "* * * * *", **fields})  # type: ignore[arg-type]
    return Schedule("mail", "report", made, NOW, NOW, NOW, NOW, "e1", NOW)


def test_a_schedule_has_no_ticks_before_its_last_change() -> None:
    assert next(ticks(schedule(), read_cron, NOW - timedelta(days=1))) == NOW + MINUTE


def test_an_interval_that_stays_keeps_its_beat() -> None:
    every = schedule(cron=None, every_seconds=60)
    later = NOW + timedelta(seconds=90)

    same = every.with_settings(
        ScheduleSettings(every_seconds=60, payload="2"), now=later, edition="e2"
    )
    other = every.with_settings(ScheduleSettings(every_seconds=50), now=later, edition="e2")

    assert (same.anchor, same.since, same.edition) == (NOW, later, "e2")
    assert (other.anchor, other.version) == (later, 2)


def test_a_day_that_comes_every_few_years_is_found_between_changes_of_the_clock() -> None:
    leap = schedule(cron="* 12 29 2 *", timezone="Europe/Madrid")

    assert next(ticks(leap, read_cron, NOW)) == datetime(2028, 2, 29, 11, tzinfo=UTC)


def test_a_cron_expression_without_a_date_left_has_no_ticks() -> None:
    class Ended:
        by_the_clock = True

        def local_times(self, _after: datetime) -> Iterator[datetime]:
            return iter(())

    assert list(cron_ticks(Ended(), ZoneInfo("UTC"), NOW)) == []


def test_a_change_of_the_clock_is_found_from_any_part_of_a_second() -> None:
    before = datetime(2026, 10, 25, 0, 59, 59, 500_000, tzinfo=UTC)
    hourly = cron_ticks(read_cron("30 * * * *"), ZoneInfo("Europe/Madrid"), before)

    assert next(hourly) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
