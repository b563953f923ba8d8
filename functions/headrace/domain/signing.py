"""Signatures of what is sent to targets, by the Standard Webhooks specification (version 1.0.0).

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md: the
HMAC-SHA256 of ``id.timestamp.body`` under the secret, in base64 behind ``v1,``; several signatures
are separated by a space.  A secret is written as ``whsec_`` and base64.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from headrace.domain.errors import HeadraceError
from headrace.domain.instants import micros_of

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

    Nobody stores it: who has the secret of the stack can make it anew.
    """
    key = hmac.digest(
        stack_secret, f"push {generation} {micros_of(created_at)} {queue}".encode(), sha256
    )
    return _PREFIX + base64.b64encode(key).decode()


def signature(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return what the signature header says of *body*: a signature by each of the *secrets*.

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
    """Return the bytes of a *secret*.  Raises ValueError for what is none."""
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
