"""Roles, permissions, the patterns that name a key's queues, and API keys.

Everything here is pure.  The API and the console call the same functions, so that a key has the
same rights in both.

A key reads ``hr_<id>_<secret>``.  Its id leads to its record in one read; the record has only a
hash of the key.  The hash is a plain SHA-256: the secret is 160 random bits, so a slow hash or a
salt would protect nothing, and every request would pay for it.
"""

import hmac
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from headrace.domain import limits
from headrace.domain.errors import FieldError, Forbidden
from headrace.domain.task import Task, without_texts

_ANY: Final = "*"
_SHOWN: Final = 128  # characters of a name in a message; longer names do not exist


SERVICE: Final = "service"
"""The actor in the audit for the service itself; no key may have this name."""

NOBODY: Final = "nobody"
"""The actor in the audit for callers whose key is unknown; no key may have this name."""

DEPLOYMENT: Final = "bootstrap"
"""The name and id of the deployment's own admin key; no other key may have this name."""

IAM: Final = "iam"
"""The actor in the audit for programs that use the tables by their own IAM rights."""

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # categories that change what is read


class Role(StrEnum):
    """The purpose of a key."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    PRODUCER = "producer"
    WORKER = "worker"
    ADMIN = "admin"


class Permission(StrEnum):
    """One row of the table of roles."""

    READ = "read"  #: queues, stats, metrics, schedules, counts; one task and its explain
    LIST = "list"  #: lists of tasks; workers
    DETAILS = "details"  #: payload, result and progress of what may be read or listed
    ENQUEUE = "enqueue"
    CANCEL = "cancel"  #: end tasks that are not done yet
    WORK = "work"  #: dequeue, report, a worker's heartbeat
    OPERATE = "operate"  #: change tasks by hand; pause and resume; schedules; audit; workers
    ADMINISTER = "administer"  #: create, edit and delete queues; keys


ROLES: Final[Mapping[Permission, tuple[Role, ...]]] = {
    Permission.READ: tuple(Role),
    Permission.LIST: (Role.VIEWER, Role.OPERATOR, Role.ADMIN),
    Permission.DETAILS: (Role.OPERATOR, Role.PRODUCER, Role.WORKER, Role.ADMIN),
    Permission.ENQUEUE: (Role.OPERATOR, Role.PRODUCER, Role.WORKER, Role.ADMIN),
    Permission.CANCEL: (Role.OPERATOR, Role.PRODUCER, Role.WORKER, Role.ADMIN),
    Permission.WORK: (Role.WORKER, Role.ADMIN),
    Permission.OPERATE: (Role.OPERATOR, Role.ADMIN),
    Permission.ADMINISTER: (Role.ADMIN,),
}
"""The one table of roles."""

_PHRASES: Final[Mapping[Permission, str]] = {
    Permission.READ: "look at queues and tasks",
    Permission.LIST: "list tasks and workers",
    Permission.DETAILS: "see payloads, results and progress",
    Permission.ENQUEUE: "enqueue tasks",
    Permission.CANCEL: "cancel tasks",
    Permission.WORK: "dequeue tasks and report on them",
    Permission.OPERATE: "change tasks, pauses, schedules and workers by hand, or read the audit",
    Permission.ADMINISTER: "administer queues and keys",
}


def may(role: Role, permission: Permission) -> bool:
    """Return whether keys of *role* have *permission*."""
    return role in ROLES[permission]


def covers(pattern: str, name: str) -> bool:
    """Return whether *pattern* matches the whole of *name*: ``*`` is any text, other text itself.

    *name* may be a pattern too: then return whether *pattern* matches everything that *name*
    matches.  Only a ``*`` of *pattern* matches a ``*`` in *name*.  So True is always right; False
    may be wrong only if *pattern* spells out every letter that a name may have.
    """
    head, *rest = pattern.split(_ANY)
    if not rest:
        return name == head
    *middle, tail = rest
    if len(name) < len(head) + len(tail) or not (name.startswith(head) and name.endswith(tail)):
        return False
    at, end = len(head), len(name) - len(tail)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: a key by its id and name, its role, and the patterns of its queues.

    ``digest`` is the hash of the presented secret, for a later check that it still works.
    ``expires_at`` is when the key expires, None for never.
    """

    key_id: str
    name: str
    role: Role
    patterns: tuple[str, ...]
    digest: str | None = field(default=None, repr=False, compare=False)
    expires_at: datetime | None = field(default=None, compare=False)

    @property
    def covers_all_queues(self) -> bool:
        """Return whether the key is for all queues, those to come included."""
        return self.covers(_ANY)

    def covers(self, queue: str) -> bool:
        """Return whether the key is for *queue*, or for every queue that the pattern matches."""
        return _ANY in self.patterns or any(covers(pattern, queue) for pattern in self.patterns)

    def shown(self, queue: str) -> str | None:
        """Return *queue*, or None if the key is not for it."""
        return queue if self.covers(queue) else None

    def covers_all(self, patterns: Sequence[str]) -> bool:
        """Return whether the key is for every queue that *patterns* match."""
        return all(map(self.covers, patterns))

    def may(self, permission: Permission, queue: str | None = None) -> bool:
        """Return whether the key has *permission*, and has it for *queue* if one is named."""
        return may(self.role, permission) and (queue is None or self.covers(queue))

    def require_expiry(self, expires_at: datetime | None) -> None:
        """Raise Forbidden if a key that expires at *expires_at* would outlive this one."""
        if self.expires_at is None:
            return
        if expires_at is None or expires_at > self.expires_at:
            until = f"{self.expires_at:%Y-%m-%dT%H:%M:%SZ}"
            detail = (
                f"this key expires at {until}: it cannot make or rotate a key that lives longer"
            )
            raise Forbidden(detail, errors=[FieldError("expires_at", detail)])

    def require(self, permission: Permission, *queues: str) -> None:
        """Raise Forbidden unless the key has *permission*, and has it for each of *queues*."""
        if not may(self.role, permission):
            raise not_this_role(self.role, permission)
        for queue in queues:
            if not self.covers(queue):
                raise not_this_queue(queue)


def key_name_fault(name: str) -> str | None:
    """Return the fault of *name* as the name of a key; None for none."""
    if not name.strip():
        return "must not be empty"
    fault = limits.text_fault(name, limits.KEY_NAME_BYTES)
    if fault:
        return fault
    if any(unicodedata.category(letter) in _UNSEEN for letter in name):
        return "must hold no control characters, nor any other that is not seen"
    taken = {
        DEPLOYMENT: "the deployment's own key",
        IAM: "callers with IAM rights",
        SERVICE: "the service itself",
        NOBODY: "callers without a key",
    }
    owner = taken.get(name.strip().casefold())
    return f"is the name of {owner}" if owner else None


def common_head(patterns: Sequence[str]) -> str:
    """Return the longest text that every name covered by any of *patterns* begins with."""
    heads = [pattern.split(_ANY, 1)[0] for pattern in patterns]
    if not heads:
        return ""
    first, last = min(heads), max(heads)
    alike = (place for place, letter in enumerate(first) if last[place : place + 1] != letter)
    return first[: next(alike, len(first))]


def as_seen_by(principal: Principal, task: Task) -> Task:
    """Return *task* as *principal* may see it: without payload, result and progress, or whole."""
    if principal.may(Permission.DETAILS):
        return task
    return without_texts(task)


# A refusal names the missing right.  It says nothing about the data.


def not_this_role(role: Role, permission: Permission) -> Forbidden:
    """Return the refusal for a key whose role lacks *permission*."""
    *most, last = ROLES[permission]
    needed = f"{', '.join(most)} or {last}" if most else last
    return Forbidden(f"a {role} key may not {_PHRASES[permission]}; that takes the role {needed}")


def not_this_queue(queue: str, *, field: str | None = None) -> Forbidden:
    """Return the refusal for a queue, or a pattern of queues, that the key is not for.

    *field* is where the request names it.
    """
    which = f"every queue {queue[:_SHOWN]}" if _ANY in queue else f"queue {queue[:_SHOWN]}"
    detail = f"this key is not for {which}"
    return Forbidden(detail, errors=[FieldError(field, detail)] if field else ())


def not_this_task(task_id: str) -> Forbidden:
    """Return the refusal for a task that is outside the key's queues, or that does not exist."""
    return Forbidden(f"this key is not for the queue of task {task_id[:_SHOWN]}, if there is one")


def not_all_queues_of(kind: str, name: str) -> Forbidden:
    """Return the refusal for a batch, action or worker that the key may not see.

    The same refusal is given if it does not exist.
    """
    return Forbidden(f"this key is not for all queues of {kind} {name[:_SHOWN]}, if there is one")


def not_this_key(key_id: str) -> Forbidden:
    """Return the refusal for a key that is wider than the caller's, or that does not exist."""
    return Forbidden(f"key {key_id[:_SHOWN]}, if there is one, is for more queues than yours")


ID: Final = re.compile(r"key_[0-9a-f]{20}", re.ASCII)
LISTED_FOR: Final = timedelta(days=90)
"""How long an expired key stays in the list; the audit keeps its entries as long."""

_KEY: Final = re.compile(r"hr_([0-9a-f]{20})_[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key without its secret.  ``last_used_at`` is right to the hour."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the key, which identifies it and is no secret."""
        return self.id.replace("key_", "hr_", 1)

    @property
    def principal(self) -> Principal:
        """The caller that presents this key."""
        return Principal(self.id, self.name, self.role, self.queues, expires_at=self.expires_at)

    @property
    def listed_until(self) -> datetime | None:
        """When the key leaves the list; None for never."""
        return None if self.expires_at is None else self.expires_at + LISTED_FOR

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key has been revoked or has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def is_forgotten(self, now: datetime) -> bool:
        """Return whether the key is past its time in the list; the store may still have it."""
        return self.listed_until is not None and self.listed_until <= now


@dataclass(frozen=True, slots=True)
class KeyTraces:
    """A key, also a revoked one, and the schedules and actions that it began.

    ``schedules`` are the queue and the name of each schedule that it put last, at most 100;
    ``actions`` the ids of its actions that have not ended.
    """

    key: ShownKey
    revoked_at: datetime | None
    schedules: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Former:
    """The hash of the secret before the last rotation, which is valid ``until`` then."""

    hash: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored; at most two of its secrets are valid at a time."""

    key: ShownKey
    hash: str = field(repr=False)
    former: Former | None = None
    version: int = 1

    def accepts(self, digest: str, now: datetime) -> bool:
        """Return whether *digest* is the hash of a valid secret; expiry is not looked at."""
        takes = hmac.compare_digest(digest, self.hash)
        if self.former is not None and now < self.former.until:
            takes |= hmac.compare_digest(digest, self.former.hash)
        return takes

    def with_secret(self, hash_: str, *, now: datetime, overlap: timedelta) -> "StoredKey":
        """Return the key with another secret; the previous one stays valid for *overlap*."""
        former = Former(self.hash, now + overlap) if overlap else None
        return replace(self, hash=hash_, former=former, version=self.version + 1)

    def with_use(self, now: datetime) -> "StoredKey":
        """Return the key as last used *now*."""
        return replace(self, key=replace(self.key, last_used_at=now), version=self.version + 1)


def new_id(now: datetime) -> str:
    """Return ``key_`` and 20 hexadecimal digits that sort by time."""
    return f"key_{int(now.timestamp() * 1000):012x}{secrets.token_hex(4)}"


def new_secret() -> str:
    """Return 160 random bits in hexadecimal."""
    return secrets.token_hex(20)


def id_in(presented: str) -> str | None:
    """Return the id that a presented key names; None if the text is not a key."""
    parts = _KEY.fullmatch(presented)
    return f"key_{parts[1]}" if parts else None


def hash_of_key(presented: str) -> str:
    """Return the hash that is kept of a key."""
    return sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()
