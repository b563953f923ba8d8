"""Identifiers: sortable where order helps, unguessable where they grant something."""

import hashlib
import math
import random
import re
import secrets
import zlib
from datetime import UTC, datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
WHOLE_ID_RE = re.compile(f"tsk_[{_ALPHABET}]{{26}}", re.ASCII)
"""A whole id as new_task_id() makes them."""

_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BITS = 80
_TASK_LENGTH = 26
_SECRET_BITS = 52  # beside 48 of milliseconds
_TAG_BITS, _TAG_LENGTH = 50, 10


def _base32(number: int, length: int) -> str:
    """Return *number* in *length* characters, an even number of them."""
    return "".join([_PAIRS[number >> bits & 1023] for bits in range(5 * length - 10, -1, -10)])


def _digest(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=_RANDOM_BITS // 8).digest()
    return int.from_bytes(digest)


def new_task_id(now: datetime) -> str:
    """Return ``tsk_`` and 26 characters that sort by time.

    The layout is ULID's: 48 bits of milliseconds, then 80 random bits.
    Source: https://github.com/ulid/spec
    """
    millis = int(now.timestamp() * 1000)
    return "tsk_" + _base32(millis << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS), 26)


def mistyped(text: str) -> str:
    """Return why *text* is not how any id of new_task_id() begins; empty where it may be."""
    rest = text.removeprefix("tsk_")
    odd = next((sign for sign in rest if sign not in _ALPHABET), "")
    if odd:
        return f"ids that Headrace makes have no {odd}"
    if len(rest) > _TASK_LENGTH:
        return f"ids that Headrace makes have {_TASK_LENGTH} characters behind tsk_"
    return ""


def derived_task_id(born: datetime, seed: str) -> str:
    """Return the id that *seed* always gives, in the form of new_task_id() at *born*."""
    millis = int(born.timestamp() * 1000)
    return "tsk_" + _base32(millis << _RANDOM_BITS | _digest(seed), 26)


def new_batch_id(now: datetime) -> str:
    """Return ``bat_`` and what new_task_id() puts behind ``tsk_``."""
    return "bat_" + new_task_id(now).removeprefix("tsk_")


def new_lease_token() -> str:
    """Return a fresh secret of 100 random bits that only the holder of a lease knows."""
    return "lse_" + _base32(secrets.randbits(100), 20)


def new_lease_tag() -> str:
    """Return a fresh tag of 50 random bits, to know the leases of one call by."""
    return _base32(secrets.randbits(_TAG_BITS), _TAG_LENGTH)


def lease_tag_of(text: str) -> str:
    """Return the tag that *text* always gives."""
    return _base32(_digest(text) >> _RANDOM_BITS - _TAG_BITS, _TAG_LENGTH)


def tagged_lease_token(tag: str) -> str:
    """Return a fresh secret as new_lease_token() does, which begins with *tag*: see is_tagged()."""
    return "lse_" + tag + _base32(secrets.randbits(_TAG_BITS), _TAG_LENGTH)


def is_tagged(token: str, tag: str) -> bool:
    """Tell whether a lease's *token* was made with *tag*."""
    return token.startswith("lse_" + tag)


def new_idempotency_key() -> str:
    """Return a fresh key of 100 random bits for one request and its repeats."""
    return _base32(secrets.randbits(100), 20)


def new_group_id(name: str | None, now: datetime) -> str:
    """Return a fresh id of a group lease opened *now*, with a secret of 52 random bits.

    Its key, where the group is kept, is the same for the same *name*, so that no two groups of one
    name are there at a time.
    """
    key = _digest(name) if name is not None else secrets.randbits(_RANDOM_BITS)
    return group_id(now, secrets.randbits(_SECRET_BITS), key)


def group_id(opened_at: datetime, secret: int, key: int) -> str:
    """Return the id of a group lease: ``lsg_``, when it was opened and a secret, and its key."""
    millis = math.ceil(opened_at.timestamp() * 1000)
    return f"lsg_{_base32(millis << _SECRET_BITS | secret, 20)}_{_base32(key, 16)}"


def group_opened_at(group_id: str) -> datetime:
    """Return when the group lease of this id was opened, to the next millisecond."""
    number = 0
    for character in group_id.split("_")[1]:
        number = number << 5 | _ALPHABET.index(character)
    return datetime.fromtimestamp((number >> _SECRET_BITS) / 1000, UTC)


def new_undo_id(now: datetime) -> str:
    """Return a fresh id of what can be undone, 26 characters like a task's."""
    millis = int(now.timestamp() * 1000)
    return "und_" + _base32(millis << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS), 26)


def action_id(seen_at: datetime, seed: str) -> str:
    """Return the id that *seed* always gives, ``act_`` and 26 characters, the latest first."""
    millis = (1 << 48) - 1 - int(seen_at.timestamp() * 1000)
    return "act_" + _base32(millis << _RANDOM_BITS | _digest(seed), 26)


def new_request_token() -> str:
    """Return a mark by which a write recognises itself after a lost answer."""
    return _base32(secrets.randbits(50), 10)


def new_chance() -> random.Random:
    """Return a generator for what must not go in step with other processes, and is no secret."""
    return random.Random(secrets.randbits(64))  # noqa: S311  as it says


def shard_of(task_id: str, shards: int) -> int:
    """Return which of *shards* index partitions *task_id* belongs to, always the same one."""
    return zlib.crc32(task_id.encode()) % shards
