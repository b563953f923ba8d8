"""A key: what it reads like, what is kept of it, and when it works.

A key reads ``hr_<id>_<secret>``.  Its id leads to its record in one read; of the whole only a hash
is kept.  A plain SHA-256 is the right hash here: the secret is 160 random bits, so there is no
dictionary to try and nothing for a slow hash or a salt to protect, and every request pays for it.
"""

import hmac
import re
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from headrace.domain.access import Principal, Role

ID: Final = re.compile(r"key_[0-9a-f]{20}", re.ASCII)
LISTED_FOR: Final = timedelta(days=90)
"""How long a key that has expired stays in the list: as long as the audit knows of it."""

_KEY: Final = re.compile(r"hr_([0-9a-f]{20})_[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key as it may be shown; ``last_used_at`` is right to the hour, no expiry is None."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def prefix(self) -> str:
        """How the key begins: enough to know it by, nothing to get in with."""
        return self.id.replace("key_", "hr_", 1)

    @property
    def principal(self) -> Principal:
        """Who presents this key."""
        return Principal(self.id, self.name, self.role, self.queues)

    @property
    def listed_until(self) -> datetime | None:
        """When it is forgotten, None for never."""
        return None if self.expires_at is None else self.expires_at + LISTED_FOR

    def expired(self, now: datetime) -> bool:
        """Tell whether it works no more."""
        return self.expires_at is not None and self.expires_at <= now

    def forgotten(self, now: datetime) -> bool:
        """Tell whether it is as good as gone, whenever the table's broom comes."""
        return self.listed_until is not None and self.listed_until <= now


@dataclass(frozen=True, slots=True)
class Former:
    """The hash of the secret before the last rotation, and until when it works beside the new."""

    hash: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as kept: at most two secrets of it live at a time."""

    key: ShownKey
    hash: str = field(repr=False)
    former: Former | None = None
    version: int = 1

    def takes(self, digest: str, now: datetime) -> bool:
        """Tell whether *digest* is the hash of a secret that lives; expiry is another matter."""
        takes = hmac.compare_digest(digest, self.hash)
        if self.former is not None and now < self.former.until:
            takes |= hmac.compare_digest(digest, self.former.hash)
        return takes

    def rotated(self, hash_: str, *, now: datetime, overlap: timedelta) -> "StoredKey":
        """Return it with another secret; the one before lives on for *overlap*, none older."""
        former = Former(self.hash, now + overlap) if overlap else None
        return replace(self, hash=hash_, former=former, version=self.version + 1)

    def used(self, now: datetime) -> "StoredKey":
        """Return it with its use noted."""
        return replace(self, key=replace(self.key, last_used_at=now), version=self.version + 1)


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
    """Return the hash that is kept of a key."""
    return sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()
