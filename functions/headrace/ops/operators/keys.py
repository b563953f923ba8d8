"""API keys: made, listed, rotated, revoked, and recognised when one is presented.

What a key reads like and what is kept of it, see ``domain.access``.
"""

import hmac
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headrace.domain import access
from headrace.domain.access import (
    ID,
    KeyTraces,
    Permission,
    Principal,
    Role,
    ShownKey,
    StoredKey,
    hash_of_key,
    id_in,
    new_id,
    new_secret,
)
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    InvalidRequest,
    KeyExists,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.slots import remember
from headrace.store.base import Record, every_record
from headrace.store.call_scope import current_actor, flat_rate
from headrace.store.records import keys as key_records
from headrace.store.records import schedules as schedule_records
from headrace.store.records.actions import KIND as ACTION
from headrace.store.records.actions import UNDER_WAY, Action
from headrace.store.records.keys import end_all

if TYPE_CHECKING:
    from headrace.runtime.service import Service


def admin_named(name: str) -> Principal:
    """Return an admin of all queues with no stored key; the audit shows *name*."""
    return Principal(name, name, Role.ADMIN, ("*",))


BOOTSTRAP: Final = admin_named(access.DEPLOYMENT)
"""The key a deployment is given in its environment: the first admin key, which makes the others."""

REVOKED_WITHIN: Final = timedelta(seconds=10)
"""The longest that a revoked key may go on working where it was known."""

_USE_NOTED_EVERY: Final = timedelta(hours=1)
_KNOWN: Final = 2_000  # keys remembered, and as many ids that are no key's
_PAGE: Final = 250
_SCHEDULES: Final = 100  # of a key that are shown
_TRIES: Final = 10  # at a key, or a name, that others change too


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key just made or rotated, and its ``secret``, which is shown only once."""

    key: ShownKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Known:
    """A key as read, and when that was."""

    stored: StoredKey
    read_at: datetime


class KeyOperations(ServicePart):
    """API keys: create, list, rotate, revoke and check them.

    A key may be *cache_seconds* old when it is checked, at most 10.  ``admin_key`` is the key of
    the deployment, if it has one, and ``admin`` its holder.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.admin_key: str | None = service.settings.admin_key
        self.cache_seconds: float = service.settings.settings_ttl_seconds
        self.admin: Principal = admin_named(service.settings.admin_name)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._unknown: OrderedDict[str, datetime] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()
        self._admin_digest: str = "" if self.admin_key is None else hash_of_key(self.admin_key)

    # Apart, so that made-up ids cannot drive the real ones out.  What is unknown is an id that was
    # not there, or the hash of a whole key that was refused when its record had just been read.

    def verify(self, presented: str, *, note_use: bool = True) -> Principal:
        """Return whose key was *presented*.  Raises Unauthenticated.

        The use of a key is noted once an hour: one write, and a request never fails for it.
        """
        digest = hash_of_key(presented)
        if hmac.compare_digest(digest, self._admin_digest):
            return self.admin
        key_id = id_in(presented)
        found = self._holder(key_id, digest) if key_id else None
        if found is None:
            if self.admin_key is None:
                raise Unauthenticated("this service has no admin key yet, and this key is unknown")
            raise Unauthenticated("the key is not known")
        principal = self._principal(found, digest)
        if note_use:
            self._note_use(found)
        return principal

    def known(self, key_id: str, digest: str | None = None) -> Principal:
        """Return the principal of key *key_id*, which was presented some time ago.

        Raises Unauthenticated after it has expired or was revoked, and after it was rotated if the
        *digest* of the earlier secret is given: immediately here, elsewhere within 10 seconds.
        """
        if key_id == self.admin.key_id and self.admin_key is not None:
            return self.admin
        found = None
        if ID.fullmatch(key_id):
            found = self._cached(key_id) if digest is None else self._holder(key_id, digest)
        if found is None:
            raise Unauthenticated("the key was revoked or has expired")
        return self._principal(found, digest)

    def _principal(self, found: _Known, digest: str | None) -> Principal:
        key = found.stored.key
        if key.is_expired(self.now()):
            raise Unauthenticated(f"the key expired at {key.expires_at:%Y-%m-%dT%H:%M:%SZ}")
        return replace(key.principal, digest=digest)

    def check_caller(self) -> None:
        """Raise Unauthenticated if the key of the current caller is valid no longer."""
        actor = current_actor()
        if actor is not None:
            self.known(actor.key_id, actor.digest)

    def create(
        self,
        by: Principal,
        name: str,
        role: Role,
        queues: tuple[str, ...] = ("*",),
        *,
        expires_at: datetime | None = None,
    ) -> IssuedKey:
        """Make a key.

        Raises Forbidden when it would be wider than *by*'s own or live longer, InvalidRequest for
        a name that none can have and an expiry in the past, and KeyExists when a living key has
        the name.
        """
        by.require(Permission.ADMINISTER)
        for place, pattern in enumerate(queues):
            if not by.covers(pattern):
                raise access.not_this_queue(pattern, field=f"queues[{place}]")
        fault = access.key_name_fault(name)
        if fault:
            raise InvalidRequest.of("name", fault)
        now = self.now()
        key = ShownKey(new_id(now), name, role, queues, now, expires_at=expires_at)
        if key.is_expired(now):
            raise InvalidRequest.of("expires_at", "must be in the future")
        by.require_expiry(expires_at)
        secret = f"{key.prefix}_{new_secret()}"
        granted: dict[str, Any] = {"name": name, "role": role.value, "queues": list(queues)}
        if expires_at is not None:
            granted["expires_at"] = expires_at.isoformat()
        record = key_records.to_record(StoredKey(key, hash_of_key(secret)))
        with self.service.audit.action("create_key", where=granted, ids=[key.id]):
            for _ in range(_TRIES):
                before = self._name_before(by, name)
                if self.store.put_records([(record, None), (key_records.name_record(key), before)]):
                    self._forget(key.id)
                    return IssuedKey(key, secret)
            raise Unavailable("others are making keys of this name too; try again")

    def rotate(self, by: Principal, key_id: str, *, overlap: timedelta = timedelta()) -> IssuedKey:
        """Give a key another secret; the one before works on for *overlap*, no older one does.

        Here the change is known at once, elsewhere within 10 seconds; the new secret works
        everywhere from the start.
        Raises as revoke(), NotFound for a key that has expired, and Forbidden for one that lives
        longer than *by*'s own.
        """
        stored = self._own(by, key_id)
        by.require_expiry(stored.key.expires_at)
        secret = f"{stored.key.prefix}_{new_secret()}"
        noted = {"name": stored.key.name, "overlap_seconds": overlap.total_seconds()}
        with self.service.audit.action("rotate_key", where=noted, ids=[key_id]):
            for _ in range(_TRIES):
                now = self.now()
                if stored.key.is_expired(now):
                    raise NotFound(f"key {key_id} has expired: make another")
                rotated = stored.with_secret(hash_of_key(secret), now=now, overlap=overlap)
                if self.store.put_record(key_records.to_record(rotated), replaces=stored.version):
                    self._forget(key_id)
                    return IssuedKey(rotated.key, secret)
                stored = self._own(by, key_id)
            raise Unavailable("others are changing this key too; try again")

    def list(
        self,
        by: Principal,
        *,
        where: ListQuery[ShownKey] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[ShownKey]:
        """Return a page of the keys not wider than *by*'s own; it may be short and not the last.

        Raises InvalidRequest for a forged cursor.
        """
        by.require(Permission.ADMINISTER)
        kind, scope, now = key_records.KIND, f"keys {by.patterns} {where.text}", self.now()

        def own(record: Record) -> ShownKey | None:
            key = key_records.from_record(record).key
            listed = by.covers_all(key.queues) and not key.is_forgotten(now)
            return key if listed and where.matches(key, now) else None

        return seek(
            self.store,
            kind,
            own,
            self.service.cursors,
            scope,
            limit=limit,
            cursor=cursor,
            now=self.now,
        )

    def get(self, by: Principal, key_id: str) -> ShownKey:
        """Return a key not wider than *by*'s own.  Raises NotFound and Forbidden as revoke()."""
        return self._own(by, key_id).key

    def traces(self, by: Principal, key_id: str) -> KeyTraces:
        """Return a key not wider than *by*'s own, with the schedules and actions begun with it.

        A key that is revoked or has expired is found for 90 days.  Raises as revoke().
        """
        by.require(Permission.ADMINISTER)
        key, revoked_at = self._living_or_revoked(key_id)
        if key is None or not by.covers_all(key.queues):
            raise _missing(by, key_id)
        schedules = (
            schedule_records.from_record(record)
            for record in every_record(self.store, schedule_records.KIND, page=_PAGE)
        )
        marks = every_record(self.store, UNDER_WAY, page=_PAGE)
        records = (self.store.record(ACTION, mark.name) for mark in marks)
        runs = (Action.of(record) for record in records if record is not None)
        under_way = (run for run in runs if run.started_at and not run.has_ended)
        put = ((one.queue, one.name) for one in schedules if one.put_by == key_id)
        return KeyTraces(
            key,
            revoked_at,
            tuple(islice(put, _SCHEDULES)),
            tuple(run.id for run in under_way if run.by_id == key_id),
        )

    def _living_or_revoked(self, key_id: str) -> tuple[ShownKey | None, datetime | None]:
        found = self._read(key_id) if ID.fullmatch(key_id) else None
        if found is not None:
            return found.stored.key, None
        record = self.store.record(key_records.REVOKED, key_id)
        if record is None or (record.expires_at or self.now()) <= self.now():
            return None, None
        return key_records.revoked_of(record)

    def revoke(self, by: Principal, key_id: str) -> None:
        """Remove a key; here it stops working at once, elsewhere within 10 seconds.

        Its sessions in the console end at once wherever they are.
        Raises NotFound, and Forbidden for one wider than *by*'s own; a *by* that is not for all
        queues is not told which.
        """
        key = self.get(by, key_id)
        with self.service.audit.action(
            "revoke_key", where={"name": key.name}, ids=[key_id]
        ) as done:
            self.store.renew_record(key_records.revoked_record(key, self.now()))
            done.changed = int(self.store.drop_record(key_records.KIND, key_id))
        self._forget(key_id)
        end_all(self.store, key_id)
        if not done.changed:
            raise _missing(by, key_id)
        # Should this be cut off, the name is free all the same: see _name_before().
        named = key_records.name_record(key)
        self.store.drop_record(named.kind, named.name, version=named.version)

    def _own(self, by: Principal, key_id: str) -> StoredKey:
        by.require(Permission.ADMINISTER)
        found = self._read(key_id) if ID.fullmatch(key_id) else None
        if found is None or not by.covers_all(found.stored.key.queues):
            raise _missing(by, key_id)
        return found.stored

    def _name_before(self, by: Principal, name: str) -> int | None:
        """Return the version of the record that holds *name*; None if no key has had it.

        A key's record is written together with it, and no id is used twice, so a key that is
        missing never returns.  Raises KeyExists when an active key has the name.
        """
        with flat_rate(read=2):  # the key is somebody else's
            named = self.store.record(key_records.NAMES, name)
            record = self.store.record(key_records.KIND, named.body["id"]) if named else None
        if named is None:
            return None
        holder = None if record is None else key_records.from_record(record).key
        if holder is None or holder.is_expired(self.now()):
            return named.version
        which = f", {holder.id}" if by.covers_all(holder.queues) else ""
        message = f"a living key has this name{which}"
        raise KeyExists(message, errors=[FieldError("name", message)])

    def _holder(self, key_id: str, digest: str) -> _Known | None:
        """Return the key with this secret; read it again before denying it."""
        found = self._cached(key_id)
        if found is None or found.stored.accepts(digest, self.now()):
            return found
        if self._missed(digest):
            return None
        found = self._read(key_id)  # it may have been rotated since it was read
        if found is None or found.stored.accepts(digest, self.now()):
            return found
        with self._lock:
            remember(self._unknown, digest, found.read_at, most=_KNOWN)
        return None

    def _cached(self, key_id: str) -> _Known | None:
        with self._lock:
            found = self._known.get(key_id)
        if found is not None and found.read_at > self._oldest():
            return found
        return None if self._missed(key_id) else self._read(key_id)

    def _missed(self, what: str) -> bool:
        """Return whether *what* was looked up and not found a moment ago."""
        with self._lock:
            missed_at = self._unknown.get(what)
        return missed_at is not None and missed_at > self._oldest()

    def _oldest(self) -> datetime:
        return self.now() - min(timedelta(seconds=self.cache_seconds), REVOKED_WITHIN)

    def _read(self, key_id: str) -> _Known | None:
        read_at = self.now()  # before the read: what is known is at least as new
        record = self.store.record(key_records.KIND, key_id)
        stored = None if record is None else key_records.from_record(record)
        if stored is None or stored.key.is_forgotten(read_at):
            with self._lock:
                self._known.pop(key_id, None)
                remember(self._unknown, key_id, read_at, most=_KNOWN)
            return None
        found = _Known(stored, read_at)
        with self._lock:
            remember(self._known, key_id, found, most=_KNOWN)
        return found

    def _note_use(self, found: _Known) -> None:
        now, last = self.now(), found.stored.key.last_used_at
        if last is not None and now - last < _USE_NOTED_EVERY:
            return
        used = found.stored.with_use(now)
        with self._lock:
            # Even if the write fails, it is tried again only after the key was read again.
            if self._known.get(used.key.id) is found:
                self._known[used.key.id] = replace(found, stored=used)
        # One of several writers wins.  A key that was revoked does not return, and one that
        # was rotated keeps its new secret.
        with suppress(Unavailable):
            self.store.put_record(key_records.to_record(used), replaces=found.stored.version)

    def _forget(self, key_id: str) -> None:
        with self._lock:
            self._known.pop(key_id, None)
            self._unknown.pop(key_id, None)


def _missing(by: Principal, key_id: str) -> NotFound | Forbidden:
    if by.covers_all_queues:
        return NotFound(f"there is no key {key_id[:64]}")
    return access.not_this_key(key_id)
