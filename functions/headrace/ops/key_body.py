"""A key: what it reads like, what is kept of it, and its control record.

A key reads ``hr_<id>_<secret>``.  Its id leads to its record in one read; of the whole only a hash
is kept.  A plain SHA-256 is the right hash here: the secret is 160 random bits, so there is no
dictionary to try and nothing for a slow hash or a salt to protect, and every request pays for it.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from headrace.domain.access import Principal, Role
from headrace.store.base import Record

KIND: Final = "key"
ID: Final = re.compile(r"key_[0-9a-f]{20}", re.ASCII)
_KEY: Final = re.compile(r"hr_([0-9a-f]{20})_[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it may be shown; ``last_used_at`` is right to the hour."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None = None

    @property
    def prefix(self) -> str:
        """How the key begins: enough to know it by, nothing to get in with."""
        return self.id.replace("key_", "hr_", 1)

    @property
    def principal(self) -> Principal:
        """Who presents this key."""
        return Principal(self.id, self.name, self.role, self.queues)


def new_id(now: datetime) -> str:
    """Return ``key_`` and 20 hexadecimal digits that sort by time."""
    return f"key_{int(now.timestamp() * 1000):012x}{secrets.token_hex(4)}"


def new_secret() -> str:
    """Return 160 random bits in hexadecimal."""
    return secrets.token_hex(20)


def id_in(presented: str) -> str | None:
    """Return the id that a presented key names; None when it does not read like a key."""
    parts = _KEY.fullmatch(presented)
    return f"key_{parts[1]}" if parts else None


def hashed(presented: str) -> str:
    """Return what is kept of a key."""
    return sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()


def to_record(key: Key, hash_: str, version: int) -> Record:
    """Return *key* as a record."""
    body = {
        "name": key.name,
        "role": key.role.value,
        "queues": list(key.queues),
        "hash": hash_,
        "created_at": key.created_at.isoformat(),
        "last_used_at": key.last_used_at and key.last_used_at.isoformat(),
    }
    return Record(KIND, key.id, body, version)


def from_record(record: Record) -> Key:
    """Return the key of *record*."""
    body = record.body
    used = body["last_used_at"]
    return Key(
        record.name,
        body["name"],
        Role(body["role"]),
        tuple(body["queues"]),
        datetime.fromisoformat(body["created_at"]),
        datetime.fromisoformat(used) if used else None,
    )
