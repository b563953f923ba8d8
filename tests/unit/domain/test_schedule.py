"""Schedules: their intervals, their settings, and how far they have come."""

from datetime import UTC, datetime, timedelta
from itertools import islice

from headrace.domain.limits import TASK_ID_RE
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.schedule import (
    Progress,
    Schedule,
    ScheduleSettings,
    tick_id,
)
from headrace.domain.task import Missed
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


def test_the_expiry_of_a_schedule_goes_before_its_queues() -> None:
    queue = Queue("mail", QueueSettings(expires_in_seconds=100), NOW, NOW)

    assert schedule().target(queue).expiry(NOW) == NOW + timedelta(seconds=100)
    assert schedule(expires_in_seconds=5).target(queue).expiry(NOW) == NOW + timedelta(seconds=5)
    assert schedule(expires_in_seconds=0).target(queue).expiry(NOW) is None


def test_the_id_of_a_tick_depends_on_secret_queue_schedule_and_instant() -> None:
    ids = {
        tick_id(b"secret", "mail", "report", NOW),
        tick_id(b"secret", "mail", "report", NOW + timedelta(microseconds=1)),
        tick_id(b"secret", "mail", "report2", NOW),
        tick_id(b"secret", "mail2", "report", NOW),
        tick_id(b"secret", "mail", "report", NOW, 1),
        tick_id(b"other secret", "mail", "report", NOW),
    }

    assert len(ids) == 6
    assert tick_id(b"secret", "mail", "report", NOW) in ids
    assert all(TASK_ID_RE.fullmatch(each) and each.startswith("sch_") for each in ids)


# -------------------------------------------------------------------------------------- progress


def test_the_schedule_says_which_of_the_missed_are_wanted() -> None:
    now = NOW + timedelta(seconds=30)
    near = [NOW - number * MINUTE for number in range(150, -1, -1)]

    assert Progress("e").wanted(near, now, missed=Missed.SKIP) == []
    assert Progress("e").wanted(near, now, missed=Missed.ALL) == near[-100:]
    assert Progress("e", recent=(NOW,)).wanted(near, now, missed=Missed.LATEST) == []
