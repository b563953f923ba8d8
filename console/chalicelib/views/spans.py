"""Which time the charts of a queue show, what they are compared with, and the links to others.

``span`` in an address ends now and goes on with the clock; ``from`` and ``to`` stay.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from .. import formatting, urls
from ..charts import Tick
from ..forms import FormErrors
from ..parts import Tab
from ..request_context import RequestContext

SPAN: Final = "span"
FROM: Final = "from"
TO: Final = "to"
COMPARE: Final = "compare"
NAMES: Final = (SPAN, FROM, TO, COMPARE)
_POINTS: Final = 90  # of a chart, where a step may be chosen
_STEPS: Final = (60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
_TICKS: Final = (
    60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_419_200,
)  # fmt: skip
_TICKS_AT_MOST: Final = 5
_LEAST: Final = timedelta(minutes=10)
_MOST: Final = timedelta(days=90)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Length:
    """How far back, in steps of how many seconds."""

    name: str
    back: timedelta
    step: int


_LENGTHS: Final[Mapping[str, _Length]] = {
    "": _Length("Last hour", timedelta(hours=1), 60),
    "day": _Length("Last day", timedelta(days=1), 1_800),
    "week": _Length("Last week", timedelta(days=7), 7_200),
    "month": _Length("Last month", timedelta(days=30), 43_200),
}
_BEFORE: Final[Mapping[str, tuple[str, str, timedelta]]] = {
    "hour": ("the hour before", "an hour before", timedelta(hours=1)),
    "day": ("yesterday", "a day before", timedelta(days=1)),
    "week": ("a week ago", "a week before", timedelta(days=7)),
}
"""What to compare with: its link, how it is called, and how long before it is."""


@dataclass(frozen=True, slots=True)
class Period:
    """A time that charts show, in steps of so many seconds; ``until`` is where the last may end.

    ``fixed`` unless it goes on with the clock; ``name`` is then that of its length.
    """

    since: datetime
    until: datetime
    step: int
    name: str = ""
    fixed: bool = False

    @classmethod
    def wanted(cls, context: RequestContext, errors: FormErrors) -> Self:
        """Return the period in the address; the last hour without a valid one."""
        since = errors.instant(FROM, context.request.param(FROM))
        until = errors.instant(TO, context.request.param(TO)) or context.now
        if since is not None:
            until = min(until, context.now)
            if since < until:
                return cls._of(since, until)
            errors.add(FROM, "must be before to, and before now")
        name = context.request.param(SPAN)
        length = _LENGTHS.get(name, _LENGTHS[""])
        end = math.ceil(context.now.timestamp() / length.step) * length.step
        begin = datetime.fromtimestamp(end, UTC) - length.back
        return cls(begin, context.now, length.step, name if name in _LENGTHS else "")

    @classmethod
    def _of(cls, since: datetime, until: datetime) -> Self:
        length = min(max(until - since, _LEAST), _MOST)
        least = length.total_seconds() / _POINTS
        step = next((one for one in _STEPS if one >= least), _STEPS[-1])
        begin = math.floor((until - length).timestamp() / step) * step
        return cls(datetime.fromtimestamp(begin, UTC), until, step, fixed=True)

    @property
    def times(self) -> str:
        """How its steps are written."""
        return "%H:%M" if self.until - self.since <= timedelta(days=1, hours=1) else "%d %b %H:%M"

    @property
    def per(self) -> str:
        """What a number of one step is of."""
        return "a minute" if self.step == 60 else f"in {formatting.duration(self.step)}"  # noqa: PLR2004

    def ticks(self) -> tuple[Tick, ...]:
        """Return round times of its axis, about five."""
        last = self.since + timedelta(seconds=self._length)
        step = next((one for one in _TICKS if self._length <= one * _TICKS_AT_MOST), _TICKS[-1])
        first = math.ceil(self.since.timestamp() / step) * step
        instants = range(first, int(last.timestamp()) + 1, step)
        found = (datetime.fromtimestamp(instant, UTC) for instant in instants)
        return tuple(
            Tick(self.place(at), f"{at:%d %b}" if at.hour == at.minute == 0 else f"{at:%H:%M}")
            for at in found
        )

    @property
    def _length(self) -> float:
        """Seconds between its first step and its last."""
        steps = math.ceil((self.until - self.since).total_seconds() / self.step)
        return self.step * max(steps - 1, 1)

    def place(self, at: datetime) -> float:
        """Return where on the axis *at* is: 0 is the first step, 1 the last."""
        return (at - self.since).total_seconds() / self._length

    def earlier(self, by: timedelta) -> "Period":
        """Return the same some time before."""
        return Period(self.since - by, self.until - by, self.step, fixed=True)

    def query(self) -> dict[str, str]:
        """Return the parameters of an address for this period."""
        if not self.fixed:
            return {SPAN: self.name}
        return {FROM: f"{self.since:%Y-%m-%dT%H:%M}", TO: f"{self.until:%Y-%m-%dT%H:%M}"}


def lengths(context: RequestContext, here: Period, query: Mapping[str, object]) -> tuple[Tab, ...]:
    """Return the links to each length of time that ends now; *query* is the rest of the page's."""
    compare = context.request.param(COMPARE)
    return tuple(
        Tab(
            length.name,
            context.url(
                urls.QUEUE,
                {**query, SPAN: name, COMPARE: _still(compare, length.back)},
                queue=context.queue,
            ),
            not here.fixed and here.name == name,
        )
        for name, length in _LENGTHS.items()
    )


def nearby(context: RequestContext, here: Period, query: Mapping[str, object]) -> tuple[Tab, ...]:
    """Return the links that zoom in and out, and that go back and on."""
    length, now = here.until - here.since, context.now
    quarter, middle = length / 4, here.since + length / 2
    compare = {COMPARE: context.request.param(COMPARE)}

    def tab(text: str, since: datetime, until: datetime) -> Tab:
        period = Period(since, min(until, now), here.step, fixed=True)
        return Tab(
            text,
            context.url(urls.QUEUE, {**query, **period.query(), **compare}, queue=context.queue),
        )

    def found() -> Iterator[Tab]:
        if length / 2 >= _LEAST:
            # What ends now is what one is after.
            end = now if not here.fixed else middle + quarter
            yield tab("Zoom in", end - length / 2, end)
        if length * 2 <= _MOST:
            end = min(now, middle + length)
            yield tab("Zoom out", end - length * 2, end)
        yield tab("Earlier", here.since - length / 2, here.until - length / 2)
        if here.fixed and here.until < now - _MINUTE:
            end = min(now, here.until + length / 2)
            yield tab("Later", end - length, end)

    return tuple(found())


def comparisons(
    context: RequestContext, here: Period, query: Mapping[str, object]
) -> tuple[Tab, ...]:
    """Return the links that compare with another time, and the one back from that."""
    wanted, length = context.request.param(COMPARE), here.until - here.since
    possible = {name: text for name, (text, _, by) in _BEFORE.items() if by >= length - _MINUTE}
    if wanted in possible:
        possible[""] = "nothing"
    return tuple(
        Tab(
            text,
            context.url(urls.QUEUE, {**query, **here.query(), COMPARE: name}, queue=context.queue),
            wanted == name and name != "",
        )
        for name, text in possible.items()
    )


def compared(context: RequestContext, here: Period) -> tuple[str, Period] | None:
    """Return the name and the period of the comparison in the address; None without one."""
    found = _BEFORE.get(_still(context.request.param(COMPARE), here.until - here.since))
    return None if found is None else (found[1], here.earlier(found[2]))


def kept(context: RequestContext) -> dict[str, str]:
    """Return the parameters of the charts, for the links of the rest of the page."""
    return {name: context.request.param(name) for name in NAMES}


def _still(compare: str, length: timedelta) -> str:
    """Return the name of a comparison where it makes sense for a time of that length."""
    found = _BEFORE.get(compare)
    return compare if found is not None and found[2] >= length - _MINUTE else ""
