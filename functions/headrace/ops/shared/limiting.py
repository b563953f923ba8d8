"""Rate limits of queues: the tokens that deliveries draw.

A service draws tokens with one write that never conflicts, and remembers the result: while the
bucket is known to be empty, it is not read.  A service that is called many times a second also
draws a *share* for the next moment, so that it does not write the bucket with each call.  Tokens
that a call leaves unused go into the share, or back into the bucket if tokens are rare.  A share
that is lost with its process loses those few tokens; no token counts twice, however late it is used
(``domain.rate``).
"""

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.patch import Patch
from headrace.domain.queue import Queue
from headrace.domain.rate import BUCKETS, Bucket, Draw, Piece, Rate, Share
from headrace.ops.shared.service_part import ServicePart

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_TRIES: Final = 5
_REMEMBERED_FOR: Final = timedelta(seconds=1)
_MOMENT: Final = timedelta(milliseconds=100)  # that a share is for
_OFTEN: Final = 4  # calls in a moment that make a share worth having
_SHARE_OF_TOKENS: Final = 4  # at most one in so many of the bucket's
_SHARE_OF_INTERVAL: Final = 10  # at most one in so many
_RARE: Final = timedelta(milliseconds=100)  # between tokens, if returning one is worth a write


@dataclass(frozen=True, slots=True)
class Granted:
    """``count`` tokens that a call may use; if none, ``wait`` is the seconds to the next."""

    pieces: tuple[Piece, ...] = ()
    count: int = 0
    wait: float = 0.0


@dataclass(slots=True)
class _BucketView:
    """What this process knows of one bucket, and holds of it."""

    share: Share
    seen: Bucket | None = None
    seen_at: datetime | None = None
    sure: bool = False  # no other process has drawn since it was seen
    moment: int = 0
    calls: int = 0
    used: int = 0
    before: tuple[int, int] = (0, 0)  # calls and used, of the moment before

    def known(self, now: datetime) -> Bucket | None:
        """Return the bucket, if it was seen a moment ago."""
        if self.seen_at is None or now - self.seen_at >= _REMEMBERED_FOR:
            return None
        return self.seen

    def learn(self, bucket: Bucket, now: datetime, *, sure: bool) -> None:
        self.seen, self.seen_at, self.sure = bucket, now, sure
        if bucket.rate != self.share.rate:
            self.share = Share(bucket.rate)

    def count(self, tokens: int, now: datetime) -> None:
        """Note a call that got *tokens*."""
        moment = int(now.timestamp() / _MOMENT.total_seconds())
        if moment != self.moment:
            self.before = (self.calls, self.used) if moment == self.moment + 1 else (0, 0)
            self.moment, self.calls, self.used = moment, 0, 0
        self.calls += 1
        self.used += tokens

    @property
    def next_moment(self) -> int:
        """How many tokens the next moment will use, where it has many calls."""
        calls, used = self.before
        return used if calls >= _OFTEN else 0


class Tokens(ServicePart):
    """Draws the tokens of rate limits."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._here: dict[str, _BucketView] = {}
        self._lock: threading.Lock = threading.Lock()

    def take(self, queue: Queue, wanted: int) -> Granted:
        """Take up to *wanted* tokens of *queue*, which must have a rate limit."""
        now = self.now()
        with self._lock:
            here = self._here.setdefault(queue.name, _BucketView(Share(_rate(queue))))
            if here.seen is not None and _newer(here.seen, queue, now) != here.seen:
                here.seen, here.share = None, Share(_rate(queue))
            pieces = here.share.use(wanted, now)
        count = sum(piece.tokens for piece in pieces)
        wait = timedelta()
        if count < wanted:
            drawn, wait = self._draw(queue, here, wanted - count, now)
            pieces += drawn
            count += sum(piece.tokens for piece in drawn)
        with self._lock:
            here.count(count, now)
        return Granted(tuple(pieces), count, 0.0 if count else wait.total_seconds())

    def release_unused(self, queue: Queue, granted: Granted, unused: int) -> None:
        """Make the last *unused* of the tokens free again: for this process, or for all."""
        here = self._here.get(queue.name)
        for piece in reversed(granted.pieces):
            if here is None or unused <= 0:
                return
            _, part = piece.split(piece.tokens - min(unused, piece.tokens))
            unused -= part.tokens
            if not self._returned(queue.name, here, part):
                with self._lock:
                    here.share.keep(part)

    def wait_seconds(self, queue: Queue) -> float:
        """Return in how many seconds there is a token; 0 when there is one."""
        bucket, now = self._stored(queue.name), self.now()
        return 0.0 if bucket is None else _newer(bucket, queue, now).wait(now).total_seconds()

    def forget(self, queue: str) -> None:
        """Drop everything kept of the limit of a queue that is deleted."""
        self.store.patch(Patch(BUCKETS, queue, mode="delete"))
        with self._lock:
            self._here.pop(queue, None)

    def _draw(
        self, queue: Queue, here: _BucketView, wanted: int, now: datetime
    ) -> tuple[list[Piece], timedelta]:
        """Draw up to *wanted* tokens and some for the share; or return the time to the next."""
        bucket = here.known(now)
        if bucket is None or (not here.sure and bucket.room(now)):
            bucket = self._look(queue, here, now)
        for _ in range(_TRIES):
            if not bucket.room(now):
                break
            draw, count = _planned(queue, bucket, wanted, here.next_moment, now)
            patched = self.store.patch(draw.patch(queue.name, bucket))
            there, made = Bucket.of(patched.fields), patched.made
            if there is None or there.rate != bucket.rate:
                bucket = self._look(queue, here, now)
                continue
            bucket = there
            with self._lock:
                here.learn(bucket, now, sure=made)
                if made:
                    begin = bucket.given - draw.length
                    piece, rest = Piece(begin, bucket.given, bucket.rate).split(count)
                    here.share.keep(rest)
                    return [piece], timedelta()
        return [], bucket.wait(now)

    def _look(self, queue: Queue, here: _BucketView, now: datetime) -> Bucket:
        """Return the bucket as it stands, under the newest settings."""
        bucket = Bucket(0, _rate(queue), queue.updated_at)
        for _ in range(_TRIES):
            stored = self._stored(queue.name)
            if stored is None:
                break
            bucket = _newer(stored, queue, now)
            if bucket == stored or self.store.patch(bucket.replacing(queue.name, stored)).made:
                break
        with self._lock:
            here.learn(bucket, now, sure=True)
        return bucket

    def _stored(self, queue: str) -> Bucket | None:
        return Bucket.of(self.store.item(BUCKETS, queue, consistent=False))

    def _returned(self, queue: str, here: _BucketView, piece: Piece) -> bool:
        """Return *piece* to the bucket if it is worth a write and no later piece was drawn."""
        bucket = here.seen
        if bucket is None or bucket.rate.token < _RARE or bucket.given != piece.end:
            return False
        less = Bucket(piece.begin, bucket.rate, bucket.since)
        if not self.store.patch(less.replacing(queue, bucket)).made:
            return False
        with self._lock:
            here.learn(less, here.seen_at or self.now(), sure=True)
        return True


def _rate(queue: Queue) -> Rate:
    limit = queue.settings.dequeuing_settings.rate_limiting
    assert limit is not None  # noqa: S101  what the callers ask first
    return Rate.of(limit)


def _newer(bucket: Bucket, queue: Queue, now: datetime) -> Bucket:
    """Return *bucket* under *queue*'s settings, if they are newer than those it is under."""
    rate = _rate(queue)
    if bucket.rate == rate or bucket.since >= queue.updated_at:
        return bucket
    return bucket.under(rate, queue.updated_at, now)


def _planned(
    queue: Queue, bucket: Bucket, wanted: int, more: int, now: datetime
) -> tuple[Draw, int]:
    """Plan to draw up to *wanted* tokens, and *more* for the next moment if there are plenty.

    Returns how many of *wanted* it is for, too.  What is for later must not begin before that.
    """
    rate = bucket.rate
    count = min(wanted, bucket.room(now))
    later = min(_MOMENT, rate.interval / _SHARE_OF_INTERVAL)
    more = min(more, rate.max_tokens // _SHARE_OF_TOKENS, bucket.room(now, after=later) - count)
    if more <= 0:
        more, later = 0, timedelta()
    begin = rate.at(now + later)
    end = rate.at(now) + rate.span
    return Draw(rate, queue.updated_at, rate.length(count + more), begin, end), count
