"""From a schedule to its ticks: local time to instants, the days when clocks change included.

A ``Cron`` says what a cron expression means on a calendar.  This module turns its local times into
instants, by the rules of Vixie cron (docs/decisions/0004-read-cron-with-cronsim.md):

- An expression that names its minutes and hours runs once for each local time: when the clock
  skips it, at the moment of the change; when the clock passes it twice, the first time.
- One whose minute or hour begins with ``*`` goes by the clock: a skipped local time does not run,
  a repeated one runs twice.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final, Protocol
from zoneinfo import ZoneInfo, available_timezones

from headrace.domain.errors import InvalidRequest
from headrace.domain.retry import Seconds
from headrace.domain.schedule import Schedule
from headrace.domain.times import MICROSECOND

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_FAR: Final = timedelta(days=4)
_NO_ZONES: Final = ("posix/", "right/", "localtime", "posixrules")  # found beside those of IANA


class Cron(Protocol):
    """A cron expression that has been read."""

    @property
    def by_the_clock(self) -> bool:
        """Whether its minute or hour begins with ``*``."""

    def local_times(self, after: datetime) -> Iterator[datetime]:
        """Yield the local times that match, in order, without a zone, from behind *after*."""


ReadCron = Callable[[str], Cron]
"""Reads an expression.  Raises InvalidRequest naming ``cron``."""


def ticks(schedule: Schedule, read: ReadCron, after: datetime) -> Iterator[datetime]:
    """Yield the ticks of *schedule* behind *after*, which is UTC as they are, in order.

    Raises InvalidRequest when the settings cannot be read.
    """
    settings = schedule.settings
    after = max(after, schedule.since)
    if settings.cron is not None:
        return cron_ticks(read(settings.cron), zone(settings.timezone), after)
    return interval_ticks(schedule.anchor, settings.every_seconds or 1, after)


def zone(name: str) -> ZoneInfo:
    """Return a time zone.  Raises InvalidRequest naming ``timezone``."""
    try:
        if not name.startswith(_NO_ZONES):
            return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # OSError for what is a folder, or no name of a file
        pass
    near = _near(name)
    hint = f"; did you mean {near}?" if near else ""
    raise InvalidRequest.of(
        "timezone", f"must be an IANA time zone, such as Europe/Madrid or UTC{hint}"
    )


def _near(name: str) -> str | None:
    """Return the zone of that place, or one that is written much the same; no CEST is an EST."""
    place = name.strip().replace(" ", "_").lower()
    known = sorted(zone for zone in available_timezones() if "/" in zone)
    # Etc/GMT+2 is two hours behind Greenwich, which is not what GMT+2 usually means.
    zones = {zone.lower(): zone for zone in known if not zone.startswith("Etc/")}
    of_place = [zone for key, zone in zones.items() if key.endswith(f"/{place}")]
    near = of_place or [zones[key] for key in get_close_matches(place, zones, n=1, cutoff=0.75)]
    return near[0] if near else None


def interval_ticks(anchor: datetime, seconds: Seconds, after: datetime) -> Iterator[datetime]:
    """Yield *anchor* plus 1, 2, 3 … times *seconds*, from behind *after*."""
    step = timedelta(microseconds=round(seconds * 1_000_000))
    tick = anchor + max(0, (after - anchor) // step) * step
    while True:
        tick += step
        yield tick


def cron_ticks(cron: Cron, place: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the instants of *cron* in a time zone, from behind *after*."""
    return _by_the_clock(cron, place, after) if cron.by_the_clock else _once(cron, place, after)


def _once(cron: Cron, place: ZoneInfo, after: datetime) -> Iterator[datetime]:
    last = after
    for local in cron.local_times(_local(after, place)):
        tick = _instant(local, place)
        if tick > last:
            yield tick
            last = tick


def _by_the_clock(cron: Cron, place: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Go from one change of the clock to the next; between them local time runs evenly."""
    seen, local = after, _local(after, place)
    while True:
        offset = _offset(seen, place)
        for match in cron.local_times(local):
            tick = (match - offset).replace(tzinfo=UTC)
            if tick - seen > _FAR and _change(seen, seen + 2 * _DAY, place) is None:
                # Clocks move by a day at most, so no local time that matches lies between.
                seen = tick - 2 * _DAY
                local = _local(seen, place)
                break
            change = _change(seen, tick, place)
            if change is not None:
                seen, local = change, _local(change, place) - MICROSECOND  # it may match
                break
            yield tick
            seen = tick
        else:
            return


def _instant(local: datetime, place: ZoneInfo) -> datetime:
    """Return the first instant that is *local*, or when the clock jumps over it."""
    instant = local.replace(tzinfo=place).astimezone(UTC)
    if _local(instant, place) == local:
        return instant
    before = local.replace(tzinfo=place, fold=1).astimezone(UTC)  # by the clock after the jump
    return _change(before, instant, place) or instant


def _local(instant: datetime, place: ZoneInfo) -> datetime:
    return instant.astimezone(place).replace(tzinfo=None)


def _offset(instant: datetime, place: ZoneInfo) -> timedelta:
    return instant.astimezone(place).utcoffset() or timedelta()


def _change(start: datetime, end: datetime, place: ZoneInfo) -> datetime | None:
    """Return when the clock changes first behind *start*, up to *end*; None if it does not.

    Two changes in one day that undo each other go unseen; there were none since 1970.
    """
    offset = _offset(start, place)
    while start < end:
        stop = min(start + _DAY, end)
        if _offset(stop, place) != offset:
            return _first_with_other_offset(start, stop, place, offset)
        start = stop
    return None


def _first_with_other_offset(
    start: datetime, stop: datetime, place: ZoneInfo, offset: timedelta
) -> datetime:
    """Halve the time between; clocks change at whole seconds."""
    low, high = start.replace(microsecond=0), stop
    if high.microsecond:
        high = high.replace(microsecond=0) + _SECOND
    while high - low > _SECOND:
        middle = low + (high - low) // (2 * _SECOND) * _SECOND
        if _offset(middle, place) == offset:
            low = middle
        else:
            high = middle
    return high
