"""API keys: made, listed, revoked, and recognised when one is presented.

What a key reads like and what is kept of it, see ``key_body``.
"""

import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from headrace.domain import access
from headrace.domain.access import Permission, Principal, Role
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.ops import key_body
from headrace.ops.audit import Audit, Caller, calling
from headrace.ops.cursor import Cursors
from headrace.ops.key_body import Key
from headrace.store.base import Store

BOOTSTRAP: Final = Principal("bootstrap", "bootstrap", Role.ADMIN, ("*",))
"""The key a deployment is given in its environment: the first admin key, which makes the others."""

REVOKED_WITHIN: Final = timedelta(seconds=10)
"""The longest that a revoked key may go on working where it was known."""

_USE_NOTED_EVERY: Final = timedelta(hours=1)
_KNOWN: Final = 2_000  # keys remembered, and as many ids that are no key's
_PAGE: Final = 250

_T = TypeVar("_T")

_ACTOR: Final[ContextVar[Principal | None]] = ContextVar("headrace_actor", default=None)


def current_actor() -> Principal | None:
    """Return who the code at hand works for; None is the service itself, or nobody yet."""
    return _ACTOR.get()


@contextmanager
def acting(principal: Principal, *, request_id: str | None = None) -> Iterator[None]:
    """Do a block on behalf of *principal*, as whom the audit will know it."""
    token = _ACTOR.set(principal)
    try:
        with calling(Caller(principal.name, request_id)):
            yield
    finally:
        _ACTOR.reset(token)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made, with the ``secret`` to present: the only time anybody sees it."""

    key: Key
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Keys in the order they were made, and the cursor of the next page."""

    keys: tuple[Key, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class _Stored:
    """A key's record as read, and when that was."""

    key: Key
    hash: str
    version: int
    read_at: datetime


@dataclass(slots=True)
class Keys:
    """The use cases of keys; *cache_seconds* is how old a key as read may be, at most 10.

    ``admin_key`` is the deployment's own, None for none.
    """

    store: Store
    now: Callable[[], datetime]
    cursors: Cursors
    audit: Audit
    admin_key: str | None = field(default=None, repr=False)
    cache_seconds: float = 10.0
    new_id: Callable[[datetime], str] = key_body.new_id
    new_secret: Callable[[], str] = key_body.new_secret
    # Apart, so that made-up ids cannot drive the real ones out.
    _known: dict[str, _Stored] = field(default_factory=dict)
    _unknown: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verify(self, presented: str, *, note_use: bool = True) -> Principal:
        """Return whose key was *presented*.  Raises Unauthenticated.

        The use of a key is noted once an hour: one write, and a request never fails for it.
        """
        digest = key_body.hashed(presented)
        own = key_body.hashed(self.admin_key) if self.admin_key is not None else ""
        if hmac.compare_digest(digest, own):
            return BOOTSTRAP
        key_id = key_body.id_in(presented)
        stored = self._cached(key_id) if key_id else None
        if stored is None or not hmac.compare_digest(digest, stored.hash):
            if self.admin_key is None:
                raise Unauthenticated("this service has no admin key yet, and this key is unknown")
            raise Unauthenticated("the key is not known")
        if note_use:
            self._note_use(stored)
        return stored.key.principal

    def known(self, key_id: str) -> Principal:
        """Return whose key *key_id* is, for a session that was opened with it.

        Raises Unauthenticated once it is revoked: at once here, elsewhere within 10 seconds.
        """
        if key_id == BOOTSTRAP.key_id and self.admin_key is not None:
            return BOOTSTRAP
        stored = self._cached(key_id) if key_body.ID.fullmatch(key_id) else None
        if stored is None:
            raise Unauthenticated("the key is not known any more")
        return stored.key.principal

    def create(
        self, by: Principal, name: str, role: Role, queues: tuple[str, ...] = ("*",)
    ) -> NewKey:
        """Make a key.  Raises Forbidden when it would be wider than *by*'s own."""
        by.require(Permission.ADMINISTER)
        for place, pattern in enumerate(queues):
            if not by.covers(pattern):
                raise access.not_this_queue(pattern, field=f"queues[{place}]")
        if name == BOOTSTRAP.name:
            message = "is the name of the deployment's own key"
            raise InvalidRequest(f"name {name} {message}", errors=[FieldError("name", message)])
        while True:
            now = self.now()
            key = Key(self.new_id(now), name, role, queues, now)
            secret = f"{key.prefix}_{self.new_secret()}"
            granted = {"name": name, "role": role.value, "queues": list(queues)}
            with self.audit.action("create_key", where=granted, ids=[key.id]) as outcome:
                made = self.store.put_record(
                    key_body.to_record(key, key_body.hashed(secret), 1), replaces=None
                )
                outcome.changed = int(made)
            if made:
                self._forget(key.id)
                return NewKey(key, secret)

    def list(self, by: Principal, *, limit: int = 50, cursor: str | None = None) -> KeyPage:
        """Return a page of the keys not wider than *by*'s own.

        Raises InvalidRequest for a forged cursor.
        """
        by.require(Permission.ADMINISTER)
        scope = f"keys {by.patterns}"
        after = self.cursors.read(scope, cursor) if cursor else ""
        # One more than asked for tells whether there is a next page; the cursor names a key that
        # was shown, because it could be read.
        found: list[Key] = []
        more = True
        while more and len(found) <= limit:
            records, more = self.store.records(
                key_body.KIND, after=after, limit=min(_PAGE, limit + 1)
            )
            keys = [key_body.from_record(record) for record in records]
            found += [key for key in keys if by.covers_all(key.queues)]
            after = records[-1].name if records else after
        page = tuple(found[:limit])
        rest = len(found) > limit
        return KeyPage(page, self.cursors.write(scope, page[-1].id) if rest else None)

    def get(self, by: Principal, key_id: str) -> Key:
        """Return a key not wider than *by*'s own.  Raises NotFound and Forbidden as revoke()."""
        by.require(Permission.ADMINISTER)
        stored = self._read(key_id) if key_body.ID.fullmatch(key_id) else None
        if stored is None or not by.covers_all(stored.key.queues):
            raise _missing(by, key_id)
        return stored.key

    def revoke(self, by: Principal, key_id: str) -> None:
        """Remove a key; here it stops working at once, elsewhere within 10 seconds.

        Raises NotFound, and Forbidden for one wider than *by*'s own; a *by* that is not for all
        queues is not told which.
        """
        key = self.get(by, key_id)
        with self.audit.action("revoke_key", where={"name": key.name}, ids=[key_id]) as done:
            done.changed = int(self.store.drop_record(key_body.KIND, key_id))
        self._forget(key_id)
        if not done.changed:
            raise _missing(by, key_id)

    def _cached(self, key_id: str) -> _Stored | None:
        oldest = self.now() - min(timedelta(seconds=self.cache_seconds), REVOKED_WITHIN)
        with self._lock:
            stored = self._known.get(key_id)
            missed_at = self._unknown.get(key_id)
        if stored is not None and stored.read_at > oldest:
            return stored
        if missed_at is not None and missed_at > oldest:
            return None
        return self._read(key_id)

    def _read(self, key_id: str) -> _Stored | None:
        read_at = self.now()  # before the read: what is known is at least as new
        record = self.store.record(key_body.KIND, key_id)
        if record is None:
            with self._lock:
                self._known.pop(key_id, None)
                _remember(self._unknown, key_id, read_at)
            return None
        stored = _Stored(key_body.from_record(record), record.body["hash"], record.version, read_at)
        with self._lock:
            _remember(self._known, key_id, stored)
        return stored

    def _note_use(self, stored: _Stored) -> None:
        now, last = self.now(), stored.key.last_used_at
        if last is not None and now - last < _USE_NOTED_EVERY:
            return
        used = replace(stored, key=replace(stored.key, last_used_at=now))
        with self._lock:
            # Whatever becomes of the write, it is not tried again before the key is read anew.
            if self._known.get(used.key.id) is stored:
                self._known[used.key.id] = used
        record = key_body.to_record(used.key, used.hash, used.version + 1)
        # Of several who note it one wins, and a key revoked meanwhile does not come back.
        with suppress(Unavailable):
            self.store.put_record(record, replaces=stored.version)

    def _forget(self, key_id: str) -> None:
        with self._lock:
            self._known.pop(key_id, None)
            self._unknown.pop(key_id, None)


def _remember(known: dict[str, _T], key_id: str, value: _T) -> None:
    known.pop(key_id, None)
    while len(known) >= _KNOWN:
        del known[next(iter(known))]
    known[key_id] = value


def _missing(by: Principal, key_id: str) -> NotFound | Forbidden:
    if by.everywhere:
        return NotFound(f"there is no key {key_id[:64]}")
    return access.not_this_key(key_id)
