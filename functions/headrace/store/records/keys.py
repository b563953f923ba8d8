"""Records of a key, under its id and under its name, and of console sessions with the key.

The first two are written together, so that only one of two keys of one name is created.  The name
of a session begins with the id of its key, so that all sessions of a key end with the key.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.access import LISTED_FOR, Former, ShownKey, StoredKey
from headrace.domain.values import convert
from headrace.store.base import Record, Store, every_record
from headrace.store.records import body_of, read_body

KIND: Final = "key"
NAMES: Final = "key_name"


def to_record(stored: StoredKey) -> Record:
    """Return a key as its record."""
    key = stored.key
    body = {**body_of(key, "id"), **body_of(stored, "key", "version")}
    return Record(KIND, key.id, body, stored.version, key.listed_until)


def from_record(record: Record) -> StoredKey:
    """Return the key of *record*.  Raises NewerRecord."""
    body = {**record.body}
    hash_, former = body.pop("hash"), convert(body.pop("former", None), Former | None)
    return StoredKey(read_body(body, ShownKey, id=record.name), hash_, former, record.version)


REVOKED: Final = "revoked_key"


def revoked_record(key: ShownKey, now: datetime) -> Record:
    """Return the record of a key that was revoked *now*; it holds no hash."""
    body = {**body_of(key, "id"), "revoked_at": now.isoformat()}
    return Record(REVOKED, key.id, body, 1, now + LISTED_FOR)


def revoked_of(record: Record) -> tuple[ShownKey, datetime]:
    """Return the revoked key of *record*, and when it was revoked.  Raises NewerRecord."""
    body = {**record.body}
    revoked_at = datetime.fromisoformat(body.pop("revoked_at"))
    return read_body(body, ShownKey, id=record.name), revoked_at


def name_record(key: ShownKey) -> Record:
    """Return the record that reserves the name of *key*.

    Its version is the id as a number, because ids are unique.  With versions from 1, a name that is
    released and reserved again would look unchanged.
    """
    version = int(key.id.removeprefix("key_"), 16)
    return Record(NAMES, key.name, {"id": key.id}, version, key.listed_until)


SESSIONS: Final = "session"
LASTS: Final = timedelta(hours=8)
IDLE: Final = timedelta(hours=1)
"""A session ends this long after the last page."""

_PAGE: Final = 250


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in user: the key, the hash of the secret, and the latest end of the session.

    ``nonce`` is random and binds forms to the session; ``seen_at`` is the time of a recent page.
    """

    key_id: str
    nonce: str
    until: datetime
    seen_at: datetime
    digest: str | None = field(default=None, repr=False)
    version: int = 1

    @property
    def name(self) -> str:
        """The name of its record."""
        return session_name(self.key_id, self.nonce)

    def has_ended(self, now: datetime) -> bool:
        """Return whether the session has ended; the store may still have its record."""
        return now >= min(self.until, self.seen_at + IDLE)


def session_name(key_id: str, nonce: str) -> str:
    """Return the name of a session's record."""
    return f"{key_id}:{nonce}"


def session_record(session: Session) -> Record:
    """Return a session as its record."""
    body = body_of(session, "key_id", "nonce", "until", "version")
    return Record(SESSIONS, session.name, body, session.version, session.until)


def session_of(record: Record) -> Session:
    """Return the session of *record*."""
    key_id, _, nonce = record.name.partition(":")
    if record.expires_at is None:
        raise AssertionError(record)
    seen_at = datetime.fromisoformat(record.body["seen_at"])
    return Session(key_id, nonce, record.expires_at, seen_at, record.body["digest"], record.version)


def end_all(store: Store, key_id: str, *, page: int = _PAGE) -> None:
    """End every session of a key, *page* of them at a time."""
    for record in every_record(store, SESSIONS, prefix=session_name(key_id, ""), page=page):
        store.drop_record(SESSIONS, record.name)
