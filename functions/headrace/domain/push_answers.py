"""What a target's answers mean, and how many requests it is sent at once.

Whoever sends is a worker like any other: what an answer becomes is a report on the task.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from headrace.domain import limits
from headrace.domain.lifecycle import Action
from headrace.domain.retry import RetryStrategy, Seconds


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """What came back of one request: a ``status``, or None where there was no answer.

    Then ``error`` and ``message`` say why.  ``body`` is what was read of it, ``whole`` unless there
    is more.
    """

    status: int | None
    body: bytes = b""
    retry_after: str | None = None
    error: str = ""
    message: str = ""
    whole: bool = True

    @property
    def label(self) -> str:
        """What it is counted as: the status, or what went wrong."""
        return str(self.status) if self.status is not None else self.error

    @property
    def busy(self) -> bool:
        """Whether the target asks for fewer requests."""
        return self.status in _BUSY


_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_REJECTED: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.GONE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_DETAIL_CHARACTERS: Final = 1_000
_LONGEST_NUMBER: Final = 9  # digits of a Retry-After


@dataclass(frozen=True, slots=True)
class PushReport:
    """What an answer means for its task; ``delay`` is in seconds, None the usual one."""

    action: Action
    result: str | None = None
    error: str = ""
    message: str = ""
    detail: str = ""
    retryable: bool = True
    delay: Seconds | None = None


def report_of(
    answer: TargetAnswer, strategy: RetryStrategy, *, now: datetime, spread: float
) -> PushReport:
    """Return what *answer* means; *strategy* is the task's, *spread* a random number in [0, 1)."""
    status = answer.status
    if status is None:
        return PushReport(Action.FAIL, error=answer.error, message=answer.message)
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return PushReport(Action.SUCCEED, result=_result(answer))
    if answer.busy:
        wait = retry_after_seconds(answer.retry_after, now)
        if wait is None:
            wait = strategy.delay_seconds(1, spread)
        return PushReport(Action.RELEASE, delay=wait)
    return PushReport(
        Action.FAIL,
        error=f"HTTP {status}",
        message=answer.message or f"the target answered {status}",
        detail=answer.body.decode("utf-8", "replace")[:_DETAIL_CHARACTERS],
        retryable=status not in _REJECTED,
    )


def retry_after_seconds(text: str | None, now: datetime) -> float | None:
    """Return the wait that a Retry-After header asks for, at most an hour; None if none is read.

    It is a number of seconds, or a date.
    """
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:_LONGEST_NUMBER])
    else:
        try:
            until = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        seconds = (until - now).total_seconds()
    return min(max(0.0, seconds), limits.RETRY_AFTER_SECONDS)


def _result(answer: TargetAnswer) -> str | None:
    """Return the answer's body as a result, if it can be one."""
    if not answer.whole or not answer.body or len(answer.body) > limits.RESULT_BYTES:
        return None
    try:
        text = answer.body.decode()
    except ValueError:
        return None
    return None if limits.result_fault(text) else text


@dataclass(slots=True)
class PushLimit:
    """How many requests one dispatcher has under way: as many as the target can bear.

    An answer that asks for fewer halves it, which it does once for all that were sent before; from
    then on it grows by one a second.  Where it falls below one, nothing is sent until it is one
    again.  Times are seconds of any clock that does not go back.
    """

    most: int
    _value: float = field(init=False)
    _at: float = field(default=0.0, init=False)
    _halved_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._value = float(self.most)

    def allowed(self, now: float) -> int:
        """Return how many requests may be under way at *now*."""
        return int(self._grown(now))

    def backs_off(self, now: float) -> bool:
        """Tell whether fewer are allowed at *now* than the settings say."""
        return self._grown(now) < self.most

    def seconds_to_next(self, now: float) -> float:
        """Return after how many seconds one more may be under way; 0 if it cannot be more."""
        value = self._grown(now)
        return 0.0 if value >= self.most else 1.0 - value % 1.0

    def halve(self, now: float, *, sent_at: float) -> None:
        """Take note of an answer that asks for fewer, to a request of *sent_at*."""
        if sent_at < self._halved_at:
            return
        self._value = self._grown(now) / 2
        self._at = self._halved_at = now

    def change(self, most: int, now: float) -> None:
        """Go by another setting from *now* on."""
        if most != self.most:
            value = self._grown(now)
            backs_off = value < self.most
            self.most, self._at = most, now
            self._value = min(value, most) if backs_off else float(most)

    def _grown(self, now: float) -> float:
        return min(float(self.most), self._value + max(0.0, now - self._at))
