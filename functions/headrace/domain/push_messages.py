"""Requests to a target and its answers: the signature, and what an answer means for the task."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from headrace.domain import limits
from headrace.domain.errors import HeadraceError
from headrace.domain.lifecycle import Action
from headrace.domain.retry import RetryStrategy, Seconds
from headrace.domain.times import micros_of

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

TOLERANCE_SECONDS: Final = 300
"""How far the clocks of sender and receiver may be apart, the way included."""

OVERLAP: Final = timedelta(hours=24)
"""How long the secret before a rotation still signs, beside the new one."""

_PREFIX: Final = "whsec_"
_VERSION: Final = "v1,"


class WebhookInvalid(HeadraceError):
    """A request that claims to come from a queue does not, or is too old."""

    code = "webhook_invalid"
    status = 401
    title = "Webhook cannot be trusted"


def derived_secret(stack_secret: bytes, queue: str, generation: int, created_at: datetime) -> str:
    """Return the secret of one *generation* of the *queue* that was created at this instant.

    A queue that is deleted and created again has other secrets.

    It is not stored: the secret of the stack gives it again.
    """
    key = hmac.digest(
        stack_secret, f"push {generation} {micros_of(created_at)} {queue}".encode(), sha256
    )
    return _PREFIX + base64.b64encode(key).decode()


def signature(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature header of *body*: a signature by each of the *secrets*.

    *timestamp* is in whole seconds since 1970.
    """
    signed = _signed(message_id, str(timestamp), body)
    return " ".join(_one(_key(secret), signed) for secret in secrets)


def check_signature(
    secret: str,
    *,
    message_id: str | None,
    timestamp: str | None,
    signatures: str | None,
    body: bytes,
    now: float,
) -> None:
    """Raise WebhookInvalid unless one of the *signatures* is that of *body* by *secret*.

    *timestamp* is the header's text, *now* the receiver's time in seconds since 1970.
    """
    if not message_id or not timestamp or not signatures:
        raise WebhookInvalid(
            f"the headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER} must all be there"
        )
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= len("9" * 15)):
        raise WebhookInvalid(f"{TIMESTAMP_HEADER} must be whole seconds since 1970")
    apart = abs(int(timestamp) - now)
    if apart > TOLERANCE_SECONDS:
        raise WebhookInvalid(
            f"it was signed {apart:.0f} s away from now, more than {TOLERANCE_SECONDS} s"
        )
    expected = _one(_key(secret), _signed(message_id, timestamp, body)).encode()
    for given in signatures.split(" "):
        if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected):
            return
    raise WebhookInvalid("no signature is that of this body by this secret")


def _key(secret: str) -> bytes:
    """Return the bytes of a *secret*.  Raises ValueError for other text."""
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a secret is {_PREFIX} and base64") from error
    if not key:
        raise ValueError("a secret must not be empty")
    return key


def _signed(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _one(key: bytes, signed: bytes) -> str:
    return _VERSION + base64.b64encode(hmac.digest(key, signed, sha256)).decode()


def signing_generations(
    generation: int, rotated_at: datetime | None, now: datetime
) -> tuple[int, ...]:
    """Return the generations that sign at *now*: the present one, and the one before for a day."""
    if rotated_at is None or generation == 0 or now >= rotated_at + OVERLAP:
        return (generation,)
    return (generation, generation - 1)


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """The answer to one request: its ``status``, or None if there was no answer.

    Then ``error`` and ``message`` say why.  ``body`` is the part that was read, ``whole`` if that
    is everything.
    """

    status: int | None
    body: bytes = b""
    retry_after: str | None = None
    error: str = ""
    message: str = ""
    whole: bool = True

    @property
    def label(self) -> str:
        """The name of its count: the status, or the failure."""
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
    """The report that an answer stands for; ``delay`` is in seconds, None for the usual delay."""

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
    """Return the report for *answer*; *strategy* is the task's, *spread* is random in [0, 1)."""
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
    """Return the wait that a Retry-After header asks for, at most an hour, or None.

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

    An answer that asks for fewer requests halves the number, once for all requests sent before.
    Then the number grows by one a second.  Below one, nothing is sent until it is one again.  Times
    are seconds of a monotonic clock.
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
        """Return whether the target allows fewer at *now* than the settings say."""
        return self._grown(now) < self.most

    def seconds_to_next(self, now: float) -> float:
        """Return after how many seconds one more may be under way; 0 if it cannot be more."""
        value = self._grown(now)
        return 0.0 if value >= self.most else 1.0 - value % 1.0

    def halve(self, now: float, *, sent_at: float) -> None:
        """Halve the number after an answer that asks for fewer, to a request of *sent_at*."""
        if sent_at < self._halved_at:
            return
        self._value = self._grown(now) / 2
        self._at = self._halved_at = now

    def change(self, most: int, now: float) -> None:
        """Use another setting from *now* on."""
        if most != self.most:
            value = self._grown(now)
            backs_off = value < self.most
            self.most, self._at = most, now
            self._value = min(value, most) if backs_off else float(most)

    def _grown(self, now: float) -> float:
        return min(float(self.most), self._value + max(0.0, now - self._at))
