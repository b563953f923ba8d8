"""What cron expressions mean in a time zone, on the days when its clocks change too."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.ticks import cron_ticks, zone
from headrace.ops.scheduling.cron import read_cron

MADRID, NEW_YORK, LORD_HOWE = "Europe/Madrid", "America/New_York", "Australia/Lord_Howe"
MINUTE = timedelta(minutes=1)


def around(expression: str, place: str, start: str, count: int = 4) -> list[str]:
    """Return ticks behind the instant *start* as local times with their offset."""
    after = datetime.fromisoformat(start).astimezone(UTC)
    found = islice(cron_ticks(read_cron(expression), zone(place), after), count)
    return [tick.astimezone(ZoneInfo(place)).strftime("%d %H:%M:%S%z") for tick in found]


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
        (LORD_HOWE, "2026-10-04"),
        ("America/Havana", "2027-03-14"),
        ("Pacific/Apia", "2011-12-30"),
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
        ("Madrid", "did you mean Europe/Madrid?"),
        ("new york", "did you mean America/New_York?"),
        ("", "such as Europe/Madrid"),
        ("../../etc/passwd", "such as"),
        ("/etc/localtime", "such as"),
        ("posix/Europe/Madrid", "such as"),
        ("UTC\0", "such as"),
    ],
)
def test_what_is_no_time_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        zone(name)

    (error,) = refused.value.errors
    assert error.field == "timezone"
    assert hint in error.message
