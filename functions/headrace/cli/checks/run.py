"""A smoke test under way: what it has made and must remove, what it has seen, and how it waits."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from textwrap import shorten
from typing import Final, NamedTuple, TypeVar

import msgspec

from headrace.cli.checks.made import Made
from headrace.cli.checks.wire import PROBLEM, Exchange, Wire, Wrong
from headrace.client.calls import ApiCall
from headrace.domain.errors import Forbidden, HeadraceError
from headrace.wire.tasks import LeasedTask

T = TypeVar("T")

INDEX_SECONDS: Final = 15.0
"""How far the table's index may be behind before that counts as wrong: seldom a second."""

MINUTELY_SECONDS: Final = 90.0
"""What runs once a minute has run after so long, with half a minute to spare."""

EXACT: Final = (
    '{"text":"Ñandú 水 🚰 \\u00e9\\t\\"quoted\\"","whole":123456789012345678901234567890,'
    '"price":1.10,"large":1E5,"order":{"b":1,"a":[true,null]}}'
)
"""A payload that comes back as it is only if nobody on the way reads and writes it anew."""


_SHOWN: Final = 120  # letters of a value in the table


class LeftOut(Exception):
    """A check could not be made, which is no fault of the deployment; the text says why."""


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WRONG = "wrong"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check; ``seen`` is for people.

    Of a wrong one, the request whose answer was not as it should be.
    """

    check: str
    outcome: CheckOutcome
    seen: str
    milliseconds: int
    method: str | None = None
    path: str | None = None
    status: int | None = None
    code: str | None = None
    request_id: str | None = None


@dataclass(slots=True)
class Smoke:
    """The tools of the checks, and what one leaves for those after it.

    ``name`` is the main queue's and that of all else that it makes; ``other`` is a second queue, in
    which nothing is dequeued once a lease has been left to lapse there.
    """

    wire: Wire
    name: str
    now: Callable[[], datetime]
    pause: Callable[[float], None]
    ngsi: bool = False
    made: Made = field(init=False)
    at: dict[str, datetime] = field(default_factory=dict)
    """When something was set going that comes about by itself, by the clock here."""
    there: dict[str, datetime] = field(default_factory=dict)
    """The same by the service's clock, for what that tells the time of."""
    events: Counter[str] = field(default_factory=Counter)
    """What the recorder must have counted in the main queue by the end."""
    held: dict[str, LeasedTask] = field(default_factory=dict)
    """The tasks of the main queue that are leased, by id."""
    kept: dict[str, str] = field(default_factory=dict)
    """Names and secrets that the service has given."""

    def __post_init__(self) -> None:
        """Begin with nothing made."""
        self.made = Made(self.wire, self.pause)

    @property
    def other(self) -> str:
        """The name of the second queue."""
        return f"{self.name}-2"

    def id(self, what: str) -> str:
        """Return the id of a task of ours."""
        return f"{self.name}-{what}"

    def need(self, what: str, after: str) -> str:
        """The value that an earlier check has kept.  Raises LeftOut, naming that check."""
        if what not in self.kept:
            raise LeftOut(f"needs what “{after}” did not bring")
        return self.kept[what]

    def needs(self, *what: tuple[str, str]) -> None:
        """Raise LeftOut unless all these are kept, each named with the check that keeps it."""
        for one, after in what:
            self.need(one, after)

    def holding(self, what: str) -> LeasedTask:
        """Return a task of ours that is leased.  Raises LeftOut."""
        found = self.held.get(self.id(what))
        if found is None:
            raise LeftOut("needs a task that “dequeue” did not bring")
        return found

    def since(self, what: str, after: str) -> datetime:
        """Return when an earlier check has set something going.  Raises LeftOut, naming it."""
        if what not in self.at:
            raise LeftOut(f"needs what “{after}” did not bring")
        return self.at[what]

    # ------------------------------------------------------------------------------ expectations

    def send(self, call: ApiCall[T], *, key: str | None = None, repeat: str | None = None) -> T:
        """Send a call and read its answer.  Raises as Wire.send() does."""
        return self.wire.send(call, key=key, repeat=repeat)

    def refused(
        self, expected: type[HeadraceError], call: ApiCall[T], *, key: str | None = None
    ) -> Exchange:
        """Send a call that must be refused as *expected*, in the shape of a problem."""
        try:
            self.wire.send(call, key=key)
        except HeadraceError:
            if self.wire.last.status is None:
                raise
            return self.problem(expected)
        raise Wrong(f"was let through; {expected.status} {expected.code} is right")

    def problem(self, expected: type[HeadraceError]) -> Exchange:
        """Return the latest exchange if its answer is the problem that is *expected*."""
        seen = self.wire.last
        found = (seen.status, seen.code, seen.problem.get("status"))
        if found != (expected.status, expected.code, expected.status):
            raise Wrong(f"{expected.status} {expected.code} is right here")
        if seen.content_type != PROBLEM:
            raise Wrong(f"a refusal as {seen.content_type or 'nothing'}; {PROBLEM} is right")
        return seen

    def until(self, look: Callable[[], T | None], *, what: str, since: datetime, most: float) -> T:
        """Look every second until something is found, for *most* seconds from *since* on.

        Raises Wrong, saying *what* did not come.
        """
        while (found := look()) is None:
            if self.now() - since > timedelta(seconds=most):
                raise Wrong(f"no {what} within {most:g} s")
            self.pause(1.0)
        return found

    def indexed(self, look: Callable[[], T | None], what: str) -> T:
        """Look until the index shows something, which it may do a moment late."""
        return self.until(look, what=what, since=self.now(), most=INDEX_SECONDS)


def expect(found: object, right: object, what: str) -> None:
    """Raise Wrong unless *what* was *found* as is right."""
    if found != right:
        raise Wrong(f"{what}: {_shown(found)}, not {_shown(right)}")


def _shown(value: object) -> str:
    return shorten(str(value), _SHOWN, placeholder=" …") or "nothing"


def words(length: timedelta) -> str:
    """Write how long something took, in seconds."""
    return f"{length.total_seconds():.1f} s"


class Check(NamedTuple):
    """One row of the table: its title, and what is done; that returns what was seen.

    Without a ``vital`` one nothing that comes after it can be checked.
    """

    title: str
    make: Callable[[Smoke], str]
    vital: bool = False


def rows(smoke: Smoke, checks: Sequence[Check]) -> Iterator[CheckRow]:
    """Make one check after the other and yield what came of each.

    The others are left out after a vital one that went wrong, and once two in a row were given no
    answer at all.  Raises Forbidden for a key that may not do what is vital.
    """
    silent, reason = 0, ""
    for check in checks:
        if reason:
            yield CheckRow(check.title, CheckOutcome.LEFT_OUT, reason, 0)
            continue
        row = row_of(smoke, check)
        yield row
        wrong = row.outcome is CheckOutcome.WRONG
        silent = silent + 1 if wrong and row.status is None and row.method else 0
        if silent > 1:
            reason = "the service gives no answer any more"
        elif wrong and check.vital:
            reason = f"nothing can be checked without “{check.title}”"


def row_of(smoke: Smoke, check: Check) -> CheckRow:
    """Make one check and return what came of it, whatever the deployment answers."""
    began, before = time.perf_counter(), len(smoke.wire.exchanges)
    wrong: Exchange | None = None
    try:
        seen, outcome = check.make(smoke), CheckOutcome.OK
    except LeftOut as error:
        seen, outcome = str(error), CheckOutcome.LEFT_OUT
    except (HeadraceError, Wrong, msgspec.DecodeError) as error:
        if check.vital and isinstance(error, Forbidden):
            raise
        seen, outcome = str(error), CheckOutcome.WRONG
        if len(smoke.wire.exchanges) > before:
            wrong = smoke.wire.last
    row = CheckRow(check.title, outcome, seen, _since(began))
    if wrong is None:
        return row
    return replace(
        row,
        method=wrong.method,
        path=wrong.path,
        status=wrong.status,
        code=wrong.code,
        request_id=wrong.request_id,
    )


def must(smoke: Smoke, check: Check) -> CheckRow:
    """Make a check without which there is nothing to check.  Raises what it meets."""
    began = time.perf_counter()
    return CheckRow(check.title, CheckOutcome.OK, check.make(smoke), _since(began))


def _since(began: float) -> int:
    return round((time.perf_counter() - began) * 1000)
