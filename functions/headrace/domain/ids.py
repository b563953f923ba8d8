"""Identifiers: sortable where order helps, unguessable where they grant something.

A lease's name is its secret and a few facts about the delivery: the attempt, the task's priority
if it has one, the worker, and when it began.  They save a read when the worker reports: the write
checks that they are true, so a name that was tampered with is refused like any other foreign lease.

A lease under a group goes by the group's id alone, as long as that can mean one delivery only.  A
task that came back to wait since the group was opened may have been under it before, and its
worker of then knows it by that id: so the next delivery is shown with its whole name, and by the
group's id nothing happens to it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import math
import random
import re
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from headrace.domain.copies import quick
from headrace.domain.limits import GROUP_ID_RE
from headrace.domain.task import Priority, Task
from headrace.domain.times import EPOCH, MICROSECOND, instant_of

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
_TOKEN_LENGTH = 20
_KEY_LENGTH = 16  # of a group lease
_MARK = ":"  # between a group lease and the delivery
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


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
    millis = int(now.timestamp() * 1000)
    return _base32(millis, _TIME_LENGTH) + _random32(_TASK_LENGTH - _TIME_LENGTH)


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


def keyed_task_id(secret: bytes, born: datetime, facts: Sequence[str | float]) -> str:
    """Return the task id that *facts* always give under *secret*, in the form of new_task_id().

    Without the secret the id cannot be computed, so no client can take it beforehand.
    """
    millis = int(born.timestamp() * 1000)
    digest = hmac.digest(secret, json.dumps(facts).encode(), "sha256")
    number = int.from_bytes(digest[: _RANDOM_BITS // 8])
    return "tsk_" + _base32(millis << _RANDOM_BITS | number, _TASK_LENGTH)


def new_batch_id(now: datetime) -> str:
    """Return ``bat_`` and what new_task_id() puts behind ``tsk_``."""
    return "bat_" + _timed(now)


def new_lease_token() -> str:
    """Return a fresh secret of 100 random bits that only the holder of a lease knows."""
    return "lse_" + _random32(_TOKEN_LENGTH)


def new_lease_tag() -> str:
    """Return a fresh tag of 50 random bits, to know the leases of one call by."""
    return _random32(_TAG_LENGTH)


def lease_tag_of(text: str) -> str:
    """Return the tag that *text* always gives."""
    return _base32(_digest(text) >> _RANDOM_BITS - _TAG_BITS, _TAG_LENGTH)


def tagged_lease_token(tag: str) -> str:
    """Return a fresh secret as new_lease_token() does, which begins with *tag*: see is_tagged()."""
    return "lse_" + tag + _random32(_TOKEN_LENGTH - _TAG_LENGTH)


def is_tagged(token: str, tag: str) -> bool:
    """Return whether a lease's *token* was made with *tag*."""
    return token.startswith("lse_" + tag)


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


def token_of(lease_id: str) -> str:
    """Return the token of a delivery's lease, unique whether it is under a group or not."""
    return lease_id.rpartition(_MARK)[2]


def leases_of(group_id: str) -> str:
    """Return the prefix of the leases of all deliveries under a group."""
    return group_id + _MARK


def opened_at(group_id: str) -> datetime:
    """Return when a group was opened, to the millisecond; long ago for what is no group's id."""
    if not is_group_id(group_id):
        return _LONG_AGO
    number = 0
    for character in group_id.split("_")[1]:
        number = number << 5 | _ALPHABET.index(character)
    return datetime.fromtimestamp((number >> _SECRET_BITS) / 1000, UTC)


def settled_under(group_id: str, settled_lease_id: str | None) -> bool:
    """Return whether a task was last settled under this group, by whichever name of its lease."""
    return settled_lease_id is not None and settled_lease_id.startswith(group_id)


def new_undo_id(now: datetime) -> str:
    """Return a fresh id of what can be undone, 26 characters like a task's."""
    return "und_" + _timed(now)


def action_id(seen_at: datetime, seed: str) -> str:
    """Return the id that *seed* always gives, ``act_`` and 26 characters, the latest first."""
    millis = (1 << 48) - 1 - int(seen_at.timestamp() * 1000)
    return "act_" + _base32(millis << _RANDOM_BITS | _digest(seed), 26)


def new_request_token() -> str:
    """Return a mark by which a write recognises itself after a lost answer."""
    return _random32(10)


def new_chance() -> random.Random:
    """Return a generator for what must not go in step with other processes, and is no secret."""
    return random.Random(secrets.randbits(64))  # noqa: S311  as it says


def shard_of(task_id: str, shards: int) -> int:
    """Return which of *shards* index partitions *task_id* belongs to, always the same one."""
    return zlib.crc32(task_id.encode()) % shards


_WORKERS: Final = 1_000  # whose names are remembered as leases have them
_LEASE: Final = re.compile(
    r"([^.]+)"  # the secret
    r"\.(0|[1-9][0-9]{0,8})([hnl]?)"  # attempt, and priority
    r"\.([^.]*)"  # the worker
    r"(?:\.(0|[1-9a-f][0-9a-f]{0,14}))?"  # when the delivery began
)
"""One lease has one name: so numbers are without zeros in front."""
_LAST: Final = (datetime(9999, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
_LETTERS: Final = {"h": Priority.HIGH, "n": Priority.NORMAL, "l": Priority.LOW, "": None}


@lru_cache(_WORKERS)
def _written(worker: str) -> str:
    return base64.urlsafe_b64encode(worker.encode()).decode().rstrip("=")


@lru_cache(_WORKERS)
def _read(text: str) -> str | None:
    """Return the worker's name that *text* is for; None for one that we did not write."""
    try:
        padded = text + "=" * (-len(text) % 4)
        worker = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    return worker if _written(worker) == text else None


def _instant(text: str) -> datetime | None:
    """Return when a delivery began, as its lease says; None for what is no instant."""
    micros = int(text, 16)
    return instant_of(micros) if micros <= _LAST else None


@quick
class LeaseName:
    """A lease as its worker names it."""

    secret: str
    attempt: int
    worker: str | None = None
    priority: Priority | None = None
    started_at: datetime | None = None

    def __str__(self) -> str:
        worker = _written(self.worker or "")
        letter = "" if self.priority is None else self.priority[0]
        began = "" if self.started_at is None else f".{(self.started_at - EPOCH) // MICROSECOND:x}"
        return f"{self.secret}.{self.attempt}{letter}.{worker}{began}"

    @classmethod
    def of(cls, task: Task) -> "LeaseName":
        """Return the name of the lease *task* is under."""
        return cls(task.lease_id or "", task.attempts, task.worker, task.priority, task.started_at)

    @classmethod
    def parse(cls, name: str) -> "LeaseName | None":
        """Return *name* as parsed; None when we did not write it."""
        known = _LEASE.fullmatch(name)
        if known is None:
            return None
        secret, attempt, letter, text, began = known.groups()
        worker = _read(text)
        started_at = None if began is None else _instant(began)
        if worker is None or (began is not None and started_at is None):
            return None
        return cls(secret, int(attempt), worker or None, _LETTERS[letter], started_at)


def shown_lease(task: Task) -> str:
    """Return the name of its lease that the worker of *task* is given."""
    group = group_of(task.lease_id)
    return str(LeaseName.of(task)) if group is None or _was_under(group, task) else group


def _was_under(group: str, task: Task) -> bool:
    """Return whether *task* may have been delivered under *group* before the present delivery."""
    returned = task.returned_at is not None and task.returned_at > opened_at(group)
    return returned or settled_under(group, task.settled_lease_id)


def names_lease(name: str, task: Task) -> bool:
    """Return whether *name* means the lease that *task* is under; a whole name always may."""
    whole = LeaseName.of(task)
    # Names that were given out before they said when the delivery began hold to their end.
    return name in (shown_lease(task), str(whole), str(replace(whole, started_at=None)))
