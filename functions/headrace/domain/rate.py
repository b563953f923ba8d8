"""A rate limit as a line of time that is given away piece by piece.

A token is a piece of the line, ``interval / max_tokens`` long.  Pieces are given away from left to
right, never before now and never further than an interval ahead, and a token may be used at an
instant only while its piece lies within an interval from then.  As no two pieces overlap, the
tokens used between *t* and *t + w* lie within *w* plus an interval, and are at most
``max_tokens + w * max_tokens / interval`` of them: a bucket that starts full and refills
continuously.  That holds however long a process keeps its pieces, so it may draw some ahead.

Positions count microseconds since 1970 times ``max_tokens``, so that every token is exactly as
many units long as the interval has microseconds.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.patch import Copy, Fields, Patch, Puts, When, number, text
from headrace.domain.queue_settings import IntervalUnit, RateLimiting
from headrace.domain.times import MICROSECOND, instant_of, micros_of

BUCKETS: Final = "bucket"
"""The kind of the control items that are buckets, each with the name of its queue."""

_GIVEN, _RATE, _SINCE = "given", "rate", "since"
_UNIT_SECONDS: Final = {
    IntervalUnit.SECONDS: 1,
    IntervalUnit.MINUTES: 60,
    IntervalUnit.HOURS: 3600,
}
_PIECES: Final = 32  # that a share holds at most


@dataclass(frozen=True, slots=True)
class Rate:
    """So many tokens an interval."""

    max_tokens: int
    interval: timedelta

    @classmethod
    def of(cls, limit: RateLimiting) -> "Rate":
        """Return the rate that a queue's settings name."""
        seconds = limit.interval * _UNIT_SECONDS[limit.interval_unit]
        return cls(limit.max_tokens, timedelta(seconds=seconds))

    @property
    def unit(self) -> int:
        """The length of a token on the line."""
        return self.interval // MICROSECOND

    @property
    def span(self) -> int:
        """The length of an interval on the line."""
        return self.unit * self.max_tokens

    @property
    def token(self) -> timedelta:
        """How long a token takes to come."""
        return self.interval / self.max_tokens

    @property
    def text(self) -> str:
        """The rate as stored."""
        return f"{self.max_tokens}/{self.unit}"

    def at(self, moment: datetime) -> int:
        """Return where *moment* is on the line."""
        return micros_of(moment) * self.max_tokens

    def length(self, tokens: int) -> int:
        """Return how long *tokens* are on the line."""
        return tokens * self.unit


@dataclass(frozen=True, slots=True)
class Bucket:
    """A rate limit as stored: ``given`` is up to where its line is given away.

    ``since`` is when the settings that name the rate were written.
    """

    given: int
    rate: Rate
    since: datetime

    @classmethod
    def of(cls, fields: Fields | None) -> "Bucket | None":
        """Return the bucket in the *fields* of its control item, or None."""
        if not fields or _GIVEN not in fields:
            return None
        tokens, unit = map(int, text(fields, _RATE).split("/"))
        since = instant_of(number(fields, _SINCE))
        return cls(number(fields, _GIVEN), Rate(tokens, unit * MICROSECOND), since)

    def replacing(self, queue: str, expects: "Bucket") -> Patch:
        """Return the write of this bucket in place of *expects*."""
        when = (When(_GIVEN, "=", expects.given), When(_RATE, "=", expects.rate.text))
        put: Puts = {_GIVEN: self.given, _RATE: self.rate.text, _SINCE: micros_of(self.since)}
        return Patch(BUCKETS, queue, when, put=put, mode="replace")

    def room(self, now: datetime, *, after: timedelta = timedelta()) -> int:
        """Return the number of tokens for a draw at *now*, in pieces that begin *after* it."""
        begin = max(self.given, self.rate.at(now + after))
        return max(0, (self.rate.at(now) + self.rate.span - begin) // self.rate.unit)

    def wait(self, now: datetime) -> timedelta:
        """Return in what time there is room for a token."""
        short = self.given + self.rate.unit - self.rate.at(now) - self.rate.span
        return max(0, -(-short // self.rate.max_tokens)) * MICROSECOND

    def under(self, rate: Rate, since: datetime, now: datetime) -> "Bucket":
        """Return the bucket under other settings, with at most its tokens of now."""
        kept = min(self.room(now), rate.max_tokens)
        return Bucket(rate.at(now) + rate.span - rate.length(kept), rate, since)


@dataclass(frozen=True, slots=True)
class Draw:
    """One conditional write: *length* of a line is given away, at *after* or behind it.

    Made if the bucket has this rate, or there is no bucket, and what is given away ends at *until*
    or before.
    """

    rate: Rate
    since: datetime
    length: int
    after: int
    until: int

    def patch(self, queue: str, seen: Bucket) -> Patch:
        """Return the write for a bucket that is probably as *seen*.

        If the bucket has given away more than *after*, the store itself adds to it, so that draws
        of other processes do not refuse this draw.
        """
        if seen.given >= self.after:
            return Patch(
                BUCKETS,
                queue,
                (
                    When(_RATE, "=", self.rate.text),
                    When(_GIVEN, ">", self.after - 1),
                    When(_GIVEN, "<=", self.until - self.length),
                ),
                add={_GIVEN: self.length},
            )
        put: Puts = {
            _GIVEN: self.after + self.length,
            _RATE: self.rate.text,
            _SINCE: Copy(_SINCE, default=micros_of(self.since)),
        }
        when = (
            When(_RATE, "=", self.rate.text, or_missing=True),
            When(_GIVEN, "<", self.after, or_missing=True),
        )
        return Patch(BUCKETS, queue, when, put=put)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tokens in a row, from ``begin`` to ``end`` on the line."""

    begin: int
    end: int
    rate: Rate

    @property
    def tokens(self) -> int:
        """How many tokens it is."""
        return max(0, self.end - self.begin) // self.rate.unit

    def split(self, tokens: int) -> tuple["Piece", "Piece"]:
        """Return the first *tokens* of it, and the rest."""
        middle = self.begin + self.rate.length(tokens)
        return Piece(self.begin, middle, self.rate), Piece(middle, self.end, self.rate)

    def usable(self, now: datetime) -> tuple["Piece", "Piece"]:
        """Return the tokens of the piece for use at *now*, and those for later."""
        at = self.rate.at(now)
        late = -(-max(0, at - self.begin) // self.rate.unit)
        _, rest = self.split(min(late, self.tokens))
        soon = max(0, min(rest.end, at + self.rate.span) - rest.begin) // self.rate.unit
        return rest.split(soon)


@dataclass(slots=True)
class Share:
    """Tokens of one rate that a process holds and has not used."""

    rate: Rate
    pieces: list[Piece] = field(default_factory=list)

    def use(self, tokens: int, now: datetime) -> list[Piece]:
        """Take out up to *tokens* that may be used at *now*; what is too old is forgotten."""
        used: list[Piece] = []
        kept: list[Piece] = []
        for piece in self.pieces:
            usable, later = piece.usable(now)
            taken, rest = usable.split(min(tokens, usable.tokens))
            tokens -= taken.tokens
            used += [taken] if taken.tokens else []
            kept += [part for part in (rest, later) if part.tokens]
        self.pieces = kept
        return used

    def keep(self, piece: Piece) -> None:
        """Hold *piece* too, if it is of the same rate."""
        if piece.tokens and piece.rate == self.rate:
            self.pieces = [*self.pieces, piece][-_PIECES:]
