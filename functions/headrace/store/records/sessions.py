"""A session of somebody in the console: what is kept of it, and its control record.

Its name begins with the id of its key, so that all of a key are found, and ended with it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.store.base import Record, Store

KIND: Final = "session"
LASTS: Final = timedelta(hours=8)
IDLE: Final = timedelta(hours=1)
"""A session ends when nobody has asked for a page for so long."""

_PAGE: Final = 250


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in: with which key and secret (its hash), until when at most.

    ``nonce`` is random and ties forms to it; ``seen_at`` is when a page was asked for, as noted.
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

    def over(self, now: datetime) -> bool:
        """Tell whether it has ended, whenever the table's broom comes."""
        return now >= min(self.until, self.seen_at + IDLE)


def session_name(key_id: str, nonce: str) -> str:
    """Return the name of a session's record."""
    return f"{key_id}:{nonce}"


def to_record(session: Session) -> Record:
    """Return a session as its record."""
    body = {"seen_at": session.seen_at.isoformat(), "digest": session.digest}
    return Record(KIND, session.name, body, session.version, session.until)


def from_record(record: Record) -> Session:
    """Return the session of *record*."""
    key_id, _, nonce = record.name.partition(":")
    if record.expires_at is None:
        raise AssertionError(record)
    seen_at = datetime.fromisoformat(record.body["seen_at"])
    return Session(key_id, nonce, record.expires_at, seen_at, record.body["digest"], record.version)


def end_all(store: Store, key_id: str, *, page: int = _PAGE) -> None:
    """End every session of a key, *page* of them at a time."""
    more, after = True, ""
    while more:
        found, more = store.records(KIND, prefix=session_name(key_id, ""), after=after, limit=page)
        for record in found:
            after = record.name
            store.drop_record(KIND, record.name)
