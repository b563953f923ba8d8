"""Identifiers: sortable where order helps, unguessable where they grant something.

A lease under a group is named by the group's id alone, as long as that can mean one delivery only.
A task that came back to wait since the group was opened may have been under it before, and its
worker of then knows it by that id.  So the next delivery is named by its own lease id, and a report
under the group's id does not change the task.
"""

import hashlib
import hmac
import json
import math
import random
import re
import secrets
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.domain.limits import GROUP_ID_RE
from headrace.domain.task import Task

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
WHOLE_ID_RE = re.compile(f"tsk_[{_ALPHABET}]{{26}}", re.ASCII)
"""A whole id as new_task_id() makes them."""

_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_DIGITS = bytes(ord(_ALPHABET[byte % 32]) for byte in range(256))
_RANDOM_BITS = 80
_TASK_LENGTH = 26
_TIME_LENGTH = 10  # of these, before 16 of random bits
_SECRET_BITS = 52  # beside 48 of milliseconds
_TAG_BITS, _TAG_LENGTH = 50, 10
_LEASE_TIME = slice(4, 14)  # in the id of a lease, behind "lse_"
_TOKEN_LENGTH = 20
_KEY_LENGTH = 16  # of a group lease
_MARK = ":"  # between a group lease and the delivery
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _base32(number: int, length: int) -> str:
    """Return *number* in *length* characters, an even number of them."""
    return "".join([_PAIRS[number >> bits & 1023] for bits in range(5 * length - 10, -1, -10)])


def _random32(length: int) -> str:
    """Return *length* characters, each of five random bits."""
    return secrets.token_bytes(length).translate(_DIGITS).decode("ascii")


def _digest(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=_RANDOM_BITS // 8).digest()
    return int.from_bytes(digest)


def new_task_id(now: datetime) -> str:
    """Return ``tsk_`` and 26 characters that sort by time.

    The layout is ULID's: 48 bits of milliseconds, then 80 random bits.
    Source: https://github.com/ulid/spec
    """
    return "tsk_" + _timed(now)


def _timed(now: datetime) -> str:
    return _base32(_millis(now), _TIME_LENGTH) + _random32(_TASK_LENGTH - _TIME_LENGTH)


def id_fault(text: str) -> str:
    """Return why *text* cannot be the begin of an id of new_task_id(), or ""."""
    rest = text.removeprefix("tsk_")
    odd = next((sign for sign in rest if sign not in _ALPHABET), "")
    if odd:
        return f"ids that Headrace makes have no {odd}"
    if len(rest) > _TASK_LENGTH:
        return f"ids that Headrace makes have {_TASK_LENGTH} characters behind tsk_"
    return ""


def derived_task_id(born: datetime, seed: str) -> str:
    """Return an id derived from *seed*, in the form of new_task_id() at *born*."""
    return "tsk_" + _base32(_millis(born) << _RANDOM_BITS | _digest(seed), 26)


def keyed_task_id(secret: bytes, born: datetime, facts: Sequence[str | float]) -> str:
    """Return a task id derived from *facts* and *secret*, in the form of new_task_id().

    Without the secret the id cannot be computed, so no client can take it beforehand.
    """
    digest = hmac.digest(secret, json.dumps(facts).encode(), "sha256")
    number = int.from_bytes(digest[: _RANDOM_BITS // 8])
    return "tsk_" + _base32(_millis(born) << _RANDOM_BITS | number, _TASK_LENGTH)


def new_batch_id(now: datetime) -> str:
    """Return ``bat_`` and 26 characters as new_task_id() makes them."""
    return "bat_" + _timed(now)


def new_lease_id(now: datetime, tag: str = "") -> str:
    """Return a fresh id of a lease granted *now*, with a secret of 100 random bits.

    A *tag* is a part of the secret: see is_tagged().
    """
    return "lse_" + _base32(_millis(now), _TIME_LENGTH) + tag + _random32(_TOKEN_LENGTH - len(tag))


def new_lease_tag() -> str:
    """Return a fresh tag of 50 random bits, which marks the leases of one call."""
    return _random32(_TAG_LENGTH)


def lease_tag_of(text: str) -> str:
    """Return a tag derived from *text*."""
    return _base32(_digest(text) >> _RANDOM_BITS - _TAG_BITS, _TAG_LENGTH)


def is_tagged(lease_id: str, tag: str) -> bool:
    """Return whether new_lease_id() made *lease_id*, under a group or not, with *tag*."""
    own = lease_id.rpartition(_MARK)[2]
    return own[_LEASE_TIME.stop :].startswith(tag)


def new_idempotency_key() -> str:
    """Return a fresh key of 100 random bits for one request and its repeats."""
    return _random32(_TOKEN_LENGTH)


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
    return f"lsg_{_base32(millis << _SECRET_BITS | secret, 20)}_{_base32(key, _KEY_LENGTH)}"


def is_group_id(text: str) -> bool:
    """Return whether *text* has the form of a group's id."""
    return GROUP_ID_RE.fullmatch(text) is not None


def group_key(group_id: str) -> str:
    """Return where a group is kept: the same place for groups of one name."""
    return group_id[-_KEY_LENGTH:]


def group_of(lease_id: str | None) -> str | None:
    """Return the group that a delivery's lease is under, if it is under one."""
    if lease_id is None or _MARK not in lease_id:
        return None
    return lease_id.partition(_MARK)[0]


def leases_of(group_id: str) -> str:
    """Return the prefix of the leases of all deliveries under a group."""
    return group_id + _MARK


def opened_at(group_id: str) -> datetime:
    """Return when a group was opened, to the millisecond; 1970 for any other text."""
    if not is_group_id(group_id):
        return _LONG_AGO
    return _instant(_number(group_id.split("_")[1]) >> _SECRET_BITS)


def granted_at(lease_id: str) -> datetime:
    """Return when a lease was granted, or its group opened if a group's id names it.

    To the millisecond.  *lease_id* must be an id that the service has made.
    """
    if is_group_id(lease_id):
        return opened_at(lease_id)
    return _instant(_number(lease_id.rpartition(_MARK)[2][_LEASE_TIME]))


def was_under(task: Task, lease_id: str) -> bool:
    """Return whether the latest delivery of *task*, which may have ended, was under *lease_id*.

    To the millisecond.  *lease_id* must be an id that the service has made, and not a group's.
    """
    return task.started_at is not None and _instant(_millis(task.started_at)) == granted_at(
        lease_id
    )


def _number(text: str) -> int:
    """Return the number that _base32() wrote."""
    number = 0
    for character in text:
        number = number << 5 | _ALPHABET.index(character)
    return number


def _instant(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def new_undo_id(now: datetime) -> str:
    """Return a fresh id of an undo: ``und_`` and 26 characters."""
    return "und_" + _timed(now)


def action_id(seen_at: datetime, seed: str) -> str:
    """Return the id that *seed* always gives, ``act_`` and 26 characters, the latest first."""
    millis = (1 << 48) - 1 - _millis(seen_at)
    return "act_" + _base32(millis << _RANDOM_BITS | _digest(seed), 26)


def new_request_token() -> str:
    """Return a random text by which a repeated write recognises itself."""
    return _random32(10)


def new_chance() -> random.Random:
    """Return a generator for what must not go in step with other processes, and is no secret."""
    return random.Random(secrets.randbits(64))  # noqa: S311  as it says


def shard_of(task_id: str, shards: int) -> int:
    """Return which of *shards* index partitions *task_id* belongs to, always the same one."""
    return zlib.crc32(task_id.encode()) % shards


def shown_lease(task: Task) -> str:
    """Return the id by which the worker of *task* names its lease."""
    group = group_of(task.lease_id)
    return task.lease_id or "" if group is None or _was_under(group, task) else group


def _was_under(group: str, task: Task) -> bool:
    """Return whether *task* may have been delivered under *group* before the present delivery."""
    returned = task.returned_at is not None and task.returned_at > opened_at(group)
    return returned or (task.settled_lease_id or "").startswith(group)


def names_lease(lease_id: str, task: Task) -> bool:
    """Return whether *lease_id* names the lease that *task* is under."""
    return lease_id in (shown_lease(task), task.lease_id)
