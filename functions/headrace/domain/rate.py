"""A rate limit as a line of time that is given away piece by piece.

A token is a piece of the line, ``interval / max_tokens`` long.  Pieces are given away from left to
right, never before now and never further than an interval ahead, and a token may be used at an
instant only while its piece lies within an interval from then.  As no two pieces overlap, the
tokens used between *t* and *t + w* lie within *w* plus an interval, and are at most
``max_tokens + w * max_tokens / interval`` of them: a bucket that starts full and refills
continuously.  That holds whoever keeps pieces for how long, so a process may draw some ahead.

Positions count microseconds since 1970 times ``max_tokens``, so that every token is exactly as
many units long as the interval has microseconds.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.instants import MICROSECOND, micros_of
from headrace.domain.queue import IntervalUnit, RateLimiting

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

    def room(self, now: datetime, *, after: timedelta = timedelta()) -> int:
        """Return how many tokens may be drawn at *now*, of those that begin *after* it or later."""
        begin = max(self.given, self.rate.at(now + after))
        return max(0, (self.rate.at(now) + self.rate.span - begin) // self.rate.unit)

    def wait(self, now: datetime) -> timedelta:
        """Return in what time there is room for a token."""
        short = self.given + self.rate.unit - self.rate.at(now) - self.rate.span
        return max(0, -(-short // self.rate.max_tokens)) * MICROSECOND

    def under(self, rate: Rate, since: datetime, now: datetime) -> "Bucket":
        """Return the bucket under other settings: no more tokens than it has now."""
        kept = min(self.room(now), rate.max_tokens)
        return Bucket(rate.at(now) + rate.span - rate.length(kept), rate, since)


@dataclass(frozen=True, slots=True)
class Draw:
    """One conditional write: *length* of a line is given away, at *after* or behind it.

    Made if the bucket is of this rate, or there is none, and what is given away ends at *until*
    or before.
    """

    rate: Rate
    since: datetime
    length: int
    after: int
    until: int

    def allowed(self, bucket: Bucket | None) -> bool:
        """Tell whether the stored *bucket* (None: there is none) lets this happen."""
        return (bucket is None or bucket.rate == self.rate) and self._end(bucket) <= self.until

    def apply(self, bucket: Bucket | None) -> Bucket:
        """Return the stored *bucket* as changed."""
        since = self.since if bucket is None else bucket.since
        return Bucket(self._end(bucket), self.rate, since)

    def _end(self, bucket: Bucket | None) -> int:
        begin = self.after if bucket is None else max(bucket.given, self.after)
        return begin + self.length


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
        """Return the tokens of it that may be used at *now*, and those that may be later."""
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
