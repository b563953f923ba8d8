"""Intervals of schedules, and what a change of a schedule keeps."""

from datetime import UTC, datetime, timedelta
from itertools import islice

from headrace.domain.schedule import (
    Schedule,
    ScheduleSettings,
)
from headrace.domain.ticks import interval_ticks, ticks
from headrace.runtime.cron import read_cron

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

    same = every.changed(ScheduleSettings(every_seconds=60, payload="2"), now=later, edition="e2")
    other = every.changed(ScheduleSettings(every_seconds=50), now=later, edition="e2")

    assert (same.anchor, same.since, same.edition) == (NOW, later, "e2")
    assert (other.anchor, other.version) == (later, 2)
