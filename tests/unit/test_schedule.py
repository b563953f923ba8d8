"""Schedules: what cron expressions mean, on the days when clocks change too, and progress."""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest
from headrace.domain.limits import TASK_ID_RE
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.schedule import (
    GRACE,
    LOOK_AHEAD,
    Progress,
    Schedule,
    ScheduleSettings,
    tick_id,
)
from headrace.domain.ticks import cron_ticks, interval_ticks, ticks, zone
from headrace.ops import schedule_body
from headrace.runtime.cron import read_cron

MADRID, NEW_YORK, LORD_HOWE = "Europe/Madrid", "America/New_York", "Australia/Lord_Howe"
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)  # a Saturday
MINUTE = timedelta(minutes=1)


def local(expression: str, start: str = "2026-11-21 08:00:00", count: int = 4) -> list[str]:
    """Return the first local times of an expression behind *start*."""
    found = read_cron(expression).local_times(datetime.fromisoformat(start))
    return [str(time) for time in islice(found, count)]


def days(expression: str, start: str = "2026-11-21 08:00:00", count: int = 4) -> list[str]:
    return [time[:10] for time in local(expression, start, count)]


def around(expression: str, place: str, start: str, count: int = 4) -> list[str]:
    """Return ticks behind the instant *start* as local times with their offset."""
    after = datetime.fromisoformat(start).astimezone(UTC)
    found = islice(cron_ticks(read_cron(expression), zone(place), after), count)
    return [tick.astimezone(ZoneInfo(place)).strftime("%d %H:%M:%S%z") for tick in found]


# ------------------------------------------------------------------------------ the expression


def test_five_fields_are_minute_hour_day_month_weekday() -> None:
    assert local("*/20 9 * * *") == [
        "2026-11-21 09:00:00",
        "2026-11-21 09:20:00",
        "2026-11-21 09:40:00",
        "2026-11-22 09:00:00",
    ]
    assert days("0 0 1 1 *", count=2) == ["2027-01-01", "2028-01-01"]


def test_with_six_fields_the_first_is_the_second() -> None:
    assert local("15,45 30 8 * * *", count=3) == [
        "2026-11-21 08:30:15",
        "2026-11-21 08:30:45",
        "2026-11-22 08:30:15",
    ]
    assert local("*/30 * * * * *", count=2) == ["2026-11-21 08:00:30", "2026-11-21 08:01:00"]


def test_with_seven_fields_the_last_is_the_year() -> None:
    assert days("0 0 12 1 1 * 2030") == ["2030-01-01"]
    assert days("0 0 0 29 2 * *", count=2) == ["2028-02-29", "2032-02-29"]
    assert days("0 0 0 29 2 * 2032-2050/12,2060") == ["2032-02-29", "2044-02-29", "2060-02-29"]
    assert days("0 0 0 1 1 * 2095/2") == ["2095-01-01", "2097-01-01", "2099-01-01"]
    assert days("0 0 0 1 1 * */50", count=3) == ["2070-01-01"]
    assert local("* * * * * * 2026", "2026-12-31 23:59:58") == ["2026-12-31 23:59:59"]


@pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUN", "Sun"])
def test_sunday_is_0_and_7_and_a_name(sunday: str) -> None:
    assert days(f"0 0 * * {sunday}", count=2) == ["2026-11-22", "2026-11-29"]


def test_names_lists_ranges_and_steps() -> None:
    assert days("0 0 * * MON-WED", count=4) == [
        "2026-11-23",
        "2026-11-24",
        "2026-11-25",
        "2026-11-30",
    ]
    assert days("0 0 * * fri-sun", count=3) == ["2026-11-22", "2026-11-27", "2026-11-28"]
    assert days("0 0 * * tue,6", count=2) == ["2026-11-24", "2026-11-28"]
    assert days("0 0 1 JAN,jul *", count=2) == ["2027-01-01", "2027-07-01"]
    assert days("0 0 1 FEB-DEC/5 *", count=3) == ["2026-12-01", "2027-02-01", "2027-07-01"]
    assert [time[11:16] for time in local("10-40/15 9 * * *")][:3] == ["09:10", "09:25", "09:40"]


def test_l_is_the_last_day_and_5l_the_last_friday() -> None:
    assert days("0 0 L * *", "2028-01-31 12:00:00") == [
        "2028-02-29",
        "2028-03-31",
        "2028-04-30",
        "2028-05-31",
    ]
    for friday in ("5L", "FRIL", "fril"):
        assert days(f"0 0 * * {friday}", count=2) == ["2026-11-27", "2026-12-25"]
    assert days("0 0 * * 0L", count=1) == days("0 0 * * 7L", count=1) == ["2026-11-29"]


def test_number_sign_is_the_nth_weekday() -> None:
    assert days("0 0 * * 5#2", count=2) == ["2026-12-11", "2027-01-08"]
    assert days("0 0 * * MON#1,7#3", count=3) == ["2026-12-07", "2026-12-20", "2027-01-04"]
    assert days("0 0 * * TUE#5", count=2) == ["2026-12-29", "2027-03-30"]


def test_w_is_the_nearest_weekday_of_the_same_month() -> None:
    assert days("0 0 15W * *", count=4) == [
        "2026-12-15",  # a Tuesday
        "2027-01-15",
        "2027-02-15",
        "2027-03-15",
    ]
    assert days("0 0 15W 5 *", count=1) == ["2027-05-14"]  # the 15th is a Saturday
    assert days("0 0 15W 8 *", count=1) == ["2027-08-16"]  # a Sunday
    assert days("0 0 1W 5 *", count=1) == ["2027-05-03"]  # a Saturday, and April is another month
    assert days("0 0 31W 1 *", count=1) == ["2027-01-29"]  # a Sunday
    assert days("0 0 31W * *", count=3) == ["2026-12-31", "2027-01-29", "2027-03-31"]
    assert days("0 0 LW * *", count=3) == ["2026-11-30", "2026-12-31", "2027-01-29"]
    assert days("0 0 1w,15w,L * *", count=3) == ["2026-11-30", "2026-12-01", "2026-12-15"]


@given(st.dates(date(2000, 1, 1), date(2060, 1, 1)), st.integers(1, 31))
def test_w_is_a_weekday_at_most_two_days_away(start: date, day: int) -> None:
    found = read_cron(f"0 0 {day}W * *").local_times(datetime.combine(start, datetime.min.time()))
    tick = next(found)
    wanted = date(tick.year, tick.month, day)

    assert tick.weekday() < 5
    assert abs((tick.date() - wanted).days) <= (1 if wanted.weekday() < 5 else 2)
    assert wanted.weekday() >= 5 or tick.date() == wanted


def test_day_of_month_or_weekday_when_both_are_given() -> None:
    both = days("0 0 13 * FRI", count=5)

    assert both == ["2026-11-27", "2026-12-04", "2026-12-11", "2026-12-13", "2026-12-18"]
    assert days("0 0 15W * MON", count=3) == ["2026-11-23", "2026-11-30", "2026-12-07"]


def test_day_of_month_and_weekday_when_one_begins_with_a_star() -> None:
    assert days("0 0 */10 * SUN", count=3) == ["2027-01-31", "2027-02-21", "2027-03-21"]
    assert days("0 0 ? * FRI", count=2) == days("0 0 * * FRI", count=2)
    assert days("0 0 0 1 * ?", count=1) == ["2026-12-01"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "must have 5 fields"),
        ("* * * *", "it has 4"),
        ("* * * * * * * *", "it has 8"),
        ("@daily", "it has 1"),
        ("60 * * * *", "60 as its minute, which takes 0-59"),
        ("* 24 * * *", "24 as its hour"),
        ("* * 0 * *", "0 as its day-of-month"),
        ("* * 32 * *", "32 as its day-of-month"),
        ("* * * 13 *", "13 as its month, which takes 1-12 or JAN-DEC"),
        ("* * * * 8", "8 as its day-of-week"),
        ("* * * * FRI-MON", "FRI-MON as its day-of-week"),
        ("* * * * 5#6", "5#6 as its day-of-week"),
        ("* * * * L", "L as its day-of-week"),
        ("61 * * * * *", "61 as its second"),
        ("0 * * * * * 1969", "1969 as its year, which takes 1970-2099"),
        ("0 * * * * * 2030-2020", "as its year"),
        ("0 * * * * * 2030/0", "as its year"),
        ("0 * * * * * twenty", "as its year"),
        ("*/0 * * * *", "*/0 as its minute"),
        ("1-5-9 * * * *", "1-5-9 as its minute"),
        ("1,,2 * * * *", "1,,2 as its minute"),
        ("-1 * * * *", "-1 as its minute"),
        ("* * 32W * *", "32W as its day-of-month"),
        ("* * 1-5W * *", "1-5W as its day-of-month"),
        ("* * ,15W * *", ",15W as its day-of-month"),
        ("0 0 30 2 *", "some month must have that day"),
        ("* * * * *\u00a0*", "ASCII"),
        ("\u0661 * * * *", "ASCII"),
        ("1," * 200 + "1 * * * *", "at most 256"),
    ],
)
def test_a_wrong_expression_is_refused_in_words(expression: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^cron ") as refused:
        read_cron(expression)

    (error,) = refused.value.errors
    assert error.field == "cron"
    assert words in error.message


@settings(max_examples=300)
@given(st.text("0123456789*,-/#LWSUNMO? ", max_size=24) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expression = read_cron(text)
    except InvalidRequest:
        return
    start = datetime(2026, 11, 21)  # noqa: DTZ001  local time
    found = list(islice(expression.local_times(start), 3))
    assert found == sorted(set(found))
    assert all(time > start for time in found)


def test_what_never_comes_ends() -> None:
    assert local("0 0 0 1 1 * 2020") == []
    assert local("0 0 0 29 2 * 2027,2029") == []
    assert local("0 0 31W 2 *") == []


# -------------------------------------------------------------------------------- time zones


def test_a_time_the_clock_skips_runs_when_it_jumps() -> None:
    assert around("30 2 * * *", MADRID, "2027-03-27T12:00Z", 2) == [
        "28 03:00:00+0200",
        "29 02:30:00+0200",
    ]
    assert around("30 2 * * *", NEW_YORK, "2027-03-13T12:00Z", 2) == [
        "14 03:00:00-0400",
        "15 02:30:00-0400",
    ]
    assert around("15 2 * * *", LORD_HOWE, "2026-10-03T12:00Z", 2) == [
        "04 02:30:00+1100",
        "05 02:15:00+1100",
    ]


def test_several_times_the_clock_skips_run_once() -> None:
    assert around("0,20,40 2,3 * * *", MADRID, "2027-03-28T00:30Z", 3) == [
        "28 03:00:00+0200",
        "28 03:20:00+0200",
        "28 03:40:00+0200",
    ]
    assert around("*/10 30 2 * * *", MADRID, "2027-03-28T00:30Z", 1) == ["28 03:00:00+0200"]
    assert around("30 15 2 * * *", MADRID, "2027-03-28T00:30Z", 1) == ["28 03:00:00+0200"]


def test_a_time_the_clock_repeats_runs_the_first_time_only() -> None:
    assert around("30 2 * * *", MADRID, "2026-10-24T12:00Z", 2) == [
        "25 02:30:00+0200",
        "26 02:30:00+0100",
    ]
    assert around("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", 2) == [
        "01 01:30:00-0400",
        "02 01:30:00-0500",
    ]
    assert around("45 1 * * *", LORD_HOWE, "2027-04-03T12:00Z", 2) == [
        "04 01:45:00+1100",
        "05 01:45:00+1030",
    ]
    assert around("30 15 2 * * *", MADRID, "2026-10-25T00:15:30Z", 1) == ["26 02:15:30+0100"]


def test_in_the_second_pass_of_a_repeated_hour_nothing_of_the_first_comes_back() -> None:
    assert around("45 2 * * *", MADRID, "2026-10-25T01:10Z", 1) == ["26 02:45:00+0100"]


def test_an_interval_skips_what_the_clock_skips() -> None:
    assert around("*/30 * * * *", MADRID, "2027-03-28T00:29Z", 3) == [
        "28 01:30:00+0100",
        "28 03:00:00+0200",
        "28 03:30:00+0200",
    ]
    assert around("45 * * * *", LORD_HOWE, "2026-10-03T15:14Z", 2) == [
        "04 01:45:00+1030",
        "04 02:45:00+1100",
    ]
    assert around("0 */2 * * *", NEW_YORK, "2027-03-14T05:30Z", 2) == [
        "14 04:00:00-0400",
        "14 06:00:00-0400",
    ]


def test_an_interval_runs_in_both_passes_of_a_repeated_hour() -> None:
    assert around("*/30 * * * *", MADRID, "2026-10-24T23:59Z", 5) == [
        "25 02:00:00+0200",
        "25 02:30:00+0200",
        "25 02:00:00+0100",
        "25 02:30:00+0100",
        "25 03:00:00+0100",
    ]
    assert around("45 * * * *", LORD_HOWE, "2027-04-03T14:30Z", 3) == [
        "04 01:45:00+1100",
        "04 01:45:00+1030",
        "04 02:45:00+1030",
    ]
    assert around("*/10 2 * * *", LORD_HOWE, "2027-04-03T14:30Z", 2) == [
        "04 02:00:00+1030",
        "04 02:10:00+1030",
    ]
    assert around("30 */30 1 * * *", NEW_YORK, "2026-11-01T04:59Z", 4) == [
        "01 01:00:30-0400",
        "01 01:30:30-0400",
        "01 01:00:30-0500",
        "01 01:30:30-0500",
    ]


def test_where_midnight_is_skipped_the_day_still_begins() -> None:
    assert around("0 0 * * *", "America/Havana", "2027-03-13T12:00Z", 1) == ["14 01:00:00-0400"]
    assert around("*/30 * * * *", "America/Havana", "2027-03-14T04:59Z", 1) == ["14 01:00:00-0400"]


def passes(
    minute: str, hour: str, place: ZoneInfo, start: datetime, end: datetime
) -> Iterator[datetime]:
    """Look at each minute as Vixie cron does: the slow way, to compare with."""
    minutes, hours = _values(minute, 60), _values(hour, 24)
    by_the_clock = minute.startswith("*") or hour.startswith("*")

    def wall(instant: datetime) -> datetime:
        return instant.astimezone(place).replace(tzinfo=None)

    furthest = max(wall(start - number * MINUTE) for number in range(240))
    now = start
    while now < end:
        now += MINUTE
        here = wall(now)
        skipped = [here]
        if not by_the_clock:
            steps = int((here - furthest) / MINUTE)
            skipped = [furthest + number * MINUTE for number in range(1, steps + 1)]
            furthest = max(furthest, here)
        if any(each.minute in minutes and each.hour in hours for each in skipped):
            yield now


def _values(text: str, size: int) -> set[int]:
    base, _, step = text.partition("/")
    first, _, last = base.replace("*", f"0-{size - 1}").partition("-")
    return set(range(int(first), int(last or first) + 1, int(step or 1)))


@pytest.mark.parametrize(
    ("place", "day"),
    [
        (MADRID, "2026-10-25"),
        (MADRID, "2027-03-28"),
        (NEW_YORK, "2026-11-01"),
        (NEW_YORK, "2027-03-14"),
        (LORD_HOWE, "2026-10-04"),
        (LORD_HOWE, "2027-04-04"),
        ("America/Havana", "2027-03-14"),
        ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ],
)
def test_ticks_are_those_of_a_cron_that_looks_at_each_minute(place: str, day: str) -> None:
    chance = random.Random(f"{place} {day}")
    zone_ = ZoneInfo(place)
    for _ in range(12):
        minute = chance.choice(["*", "*/7", "*/30", "0", "45", "30", "0-10"])
        hour = chance.choice(["*", "*/2", "*/3", "2", "1", "1-3", "0", "0-4"])
        start = datetime.fromisoformat(f"{day}T00:00Z") + MINUTE * chance.randrange(-1500, 600)
        end = start + timedelta(hours=26)

        found = cron_ticks(read_cron(f"{minute} {hour} * * *"), zone_, start)

        expected = list(passes(minute, hour, zone_, start, end))
        assert list(takewhile(lambda tick: tick <= end, found)) == expected, (minute, hour, start)  # noqa: B023  used at once


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Madird", "did you mean Europe/Madrid?"),
        ("europe/madrid", "did you mean Europe/Madrid?"),
        ("Europe", "such as Europe/Madrid"),
        ("", "such as Europe/Madrid"),
        ("../../etc/passwd", "such as"),
        ("/etc/localtime", "such as"),
        ("localtime", "such as"),
        ("posix/Europe/Madrid", "such as"),
        ("UTC\0", "such as"),
        ("a" * 300, "such as"),
    ],
)
def test_what_is_no_time_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        zone(name)

    (error,) = refused.value.errors
    assert error.field == "timezone"
    assert hint in error.message


# ------------------------------------------------------------------------- intervals, schedules


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


def test_the_id_of_a_tick_is_made_of_queue_schedule_and_instant() -> None:
    ids = {
        tick_id("mail", "report", NOW),
        tick_id("mail", "report", NOW + timedelta(microseconds=1)),
        tick_id("mail", "report2", NOW),
        tick_id("mail2", "report", NOW),
    }

    assert len(ids) == 4
    assert tick_id("mail", "report", NOW) in ids
    assert all(TASK_ID_RE.fullmatch(each) and each.startswith("sch_") for each in ids)


# ------------------------------------------------------------------------------------ progress


def every_minute(tick: datetime) -> datetime:
    return tick.replace(second=0, microsecond=0) + MINUTE


def test_wanted_are_the_ticks_ahead_and_the_newest_missed() -> None:
    now = NOW + timedelta(seconds=30)
    near = [NOW - MINUTE / 4, NOW, *(NOW + number * MINUTE for number in range(1, 9))]

    assert Progress("e").wanted(near, now) == [NOW + number * MINUTE for number in range(4)]
    assert Progress("e", recent=(NOW, NOW + MINUTE)).wanted(near, now) == near[3:5]


def test_what_is_done_is_told_in_one_stretch_however_long() -> None:
    progress, now = Progress("e"), NOW
    for _ in range(500):
        near = takewhile(lambda tick: tick <= now + LOOK_AHEAD, iter_minutes(now - GRACE))  # noqa: B023  used at once
        progress = progress.plus(progress.wanted(near, now), now=now, following=every_minute)
        now += MINUTE

    assert len(progress.done) == 1
    assert len(progress.recent) < 6
    assert progress.has(NOW + 250 * MINUTE)
    assert not progress.has(now + LOOK_AHEAD)


def iter_minutes(after: datetime) -> Iterator[datetime]:
    while True:
        after = every_minute(after)
        yield after


def test_after_a_jump_there_and_back_nothing_is_lost_or_doubled() -> None:
    ahead = NOW + timedelta(hours=5)
    progress = Progress("e").plus([NOW + MINUTE], now=NOW, following=every_minute)
    progress = progress.plus([ahead], now=ahead, following=every_minute)
    progress = progress.plus([ahead + MINUTE], now=ahead + 3 * MINUTE, following=every_minute)

    assert [progress.has(tick) for tick in (NOW + MINUTE, ahead, ahead + MINUTE)] == [True] * 3
    assert not progress.has(NOW + 2 * MINUTE)
    assert not progress.has(ahead - MINUTE)


def test_ticks_missed_long_ago_are_given_up_so_that_progress_stays_small() -> None:
    progress = Progress("e")
    for number in range(0, 100, 5):
        tick = NOW + number * MINUTE
        progress = progress.plus([tick], now=tick + 2 * MINUTE, following=every_minute)

    assert len(progress.done) == 8
    assert progress.has(NOW + 3 * MINUTE)  # missed; nothing will make it now
    assert not progress.has(NOW + 93 * MINUTE)


def test_progress_is_read_as_it_was_written() -> None:
    progress = Progress("e", ((NOW, NOW + MINUTE),), (NOW + 2 * MINUTE,), NOW)

    assert schedule_body.from_text(schedule_body.to_text(progress)) == progress
    assert schedule_body.from_text(schedule_body.to_text(Progress("e"))) == Progress("e")


def test_the_latest_run_is_the_last_that_has_come() -> None:
    progress = Progress("e", ((NOW, NOW + MINUTE),), (NOW + 2 * MINUTE, NOW + 3 * MINUTE))

    assert progress.last_run_at(NOW + 2.5 * MINUTE) == NOW + 2 * MINUTE
    assert progress.last_run_at(NOW - MINUTE) is None
    by_hand = Progress("e", progress.done, progress.recent, NOW + 2.2 * MINUTE)
    assert by_hand.last_run_at(NOW + 2.5 * MINUTE) == NOW + 2.2 * MINUTE
