"""Identifiers: sortable where order helps, unguessable where they grant something."""

import hashlib
import secrets
import zlib
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_RANDOM_BITS = 80


def _base32(number: int, length: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in range(length - 1, -1, -1))


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


def derived_task_id(born: datetime, seed: str) -> str:
    """Return the id that *seed* always gives, in the form of new_task_id() at *born*."""
    millis = int(born.timestamp() * 1000)
    return "tsk_" + _base32(millis << _RANDOM_BITS | _digest(seed), 26)


def new_lease_token() -> str:
    """Return a fresh secret of 100 random bits that only the holder of a lease knows."""
    return "lse_" + _base32(secrets.randbits(100), 20)


def new_group_id(name: str | None) -> str:
    """Return a fresh id of a group lease: ``lsg_``, a secret of 100 random bits, and its key.

    The key is where the group is kept, the same for the same *name*, so that no two groups of one
    name are there at a time.
    """
    key = _digest(name) if name is not None else secrets.randbits(_RANDOM_BITS)
    return f"lsg_{_base32(secrets.randbits(100), 20)}_{_base32(key, 16)}"


def new_request_token() -> str:
    """Return a mark by which a write recognises itself after a lost answer."""
    return _base32(secrets.randbits(50), 10)


def shard_of(task_id: str, shards: int) -> int:
    """Return which of *shards* index partitions *task_id* belongs to, always the same one."""
    return zlib.crc32(task_id.encode()) % shards
