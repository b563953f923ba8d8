"""The audit: an entry for each action of a person, with its filter, reason and result.

An entry is written before the action changes the first task, and completed after the last.
Settings are kept without secrets, and shortened.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.filters import instant_before
from headrace.domain.ids import new_task_id
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.push import MASK
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import Record
from headrace.store.call_scope import caller, restricted, visible
from headrace.store.records import body_of

_log: Final = safe_logger(__name__)

KIND: Final = "audit"
KEPT: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One action; ``matched`` and ``changed`` are None until it is over.

    ``actor`` is the name of the key that did it, ``actor_id`` its id, because names may be used
    again.  ``reason`` is the reason in the actor's words; ``before`` and ``after`` are the settings
    that it changed.  For an action in the background, ``run`` is its id, ``left`` counts the
    skipped tasks by reason, and ``stopped`` says why it ended early.  ``undos`` are the ids of the
    undos that restore the deleted tasks.
    """

    at: datetime
    actor: str
    action: str
    queue: str | None = None
    filter: Mapping[str, Any] | None = None
    ids: Sequence[str] | None = None
    matched: int | None = None
    changed: int | None = None
    request_id: str | None = None
    actor_id: str | None = None
    reason: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    run: str | None = None
    left: Mapping[str, int] | None = None
    stopped: str | None = None
    undos: Sequence[str] | None = None


@dataclass(slots=True)
class ActionOutcome:
    """The numbers of an action, filled in by the code that carries it out.

    An action on many tasks counts as it proceeds, so the numbers are right wherever it is cut off.
    """

    matched: int = 1
    changed: int = 1
    entry: str = ""
    """The id of the entry, if the action continues in the background."""

    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    """The settings that were changed."""

    undo: str | None = None
    """The id of the undo that restores the deleted tasks."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Matches an entry if all fields match; ``before`` is not included.

    ``actor`` is the name of a key, or its id.  ``matching`` is an additional query.
    """

    queue: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    matching: "ListQuery[AuditRecord]" = EVERY_ROW

    def narrowed(self, now: datetime) -> "AuditFilter":
        """Return this filter with the times of its query, as they are at *now*."""
        named = self.matching.named
        since = [self.since, instant_before(named.get("after"), now)]
        before = [self.before, instant_before(named.get("before"), now)]
        return replace(
            self,
            since=max((at for at in since if at is not None), default=None),
            before=min((at for at in before if at is not None), default=None),
        )

    def check_span(self) -> None:
        """Raise InvalidRequest naming ``from`` for an empty period."""
        if self.since is not None and self.before is not None and self.since >= self.before:
            raise InvalidRequest.of("from", "must be before to")

    def matches(self, entry: AuditRecord, now: datetime) -> bool:
        """Return whether *entry* matches at *now*."""
        named = ("queue", "action")
        return (
            all(getattr(self, name) in (None, getattr(entry, name)) for name in named)
            and self.actor in (None, entry.actor, entry.actor_id)
            and (self.since is None or entry.at >= self.since)
            and (self.before is None or entry.at < self.before)
            and self.matching.matches(entry, now)
        )


class Audit(ServicePart):
    """Writes and reads the audit."""

    @contextmanager
    def action(
        self,
        action: str,
        *,
        queue: str | None = None,
        where: Mapping[str, Any] | None = None,
        ids: Sequence[str] | None = None,
        by_parts: bool = False,
        reason: str = "",
    ) -> Iterator[ActionOutcome]:
        """Record *action* before the block, and its numbers after.

        A failed action changed nothing; one that proceeds *by_parts* changed the number counted so
        far.  If the table fails after the action, the action stays done: its entry has no numbers,
        and a log line has them.
        """
        entry = replace(self._entry(action, queue, where, ids), reason=reason or None)
        name = _new_name(entry)
        self.store.put_record(_record(name, entry), replaces=None)
        outcome = ActionOutcome(0, 0, name) if by_parts else ActionOutcome(entry=name)
        try:
            yield outcome
        except BaseException:
            if not by_parts:
                outcome.changed = 0
            raise
        finally:
            done = replace(
                entry,
                matched=outcome.matched,
                changed=outcome.changed,
                before=outcome.before,
                after=outcome.after,
                undos=None if outcome.undo is None else (outcome.undo,),
            )
            try:
                self.store.put_record(replace(_record(name, done), version=2), replaces=1)
            except Unavailable as error:
                _log.error("The audit entry of %s in %s has no numbers: %s", action, queue, error)

    def note(
        self,
        action: str,
        *,
        queue: str | None = None,
        where: Mapping[str, Any] | None = None,
        ids: Sequence[str] | None = None,
        changed: int = 1,
    ) -> None:
        """Note what is over already: one write.  What was refused has *changed* nothing."""
        entry = replace(self._entry(action, queue, where, ids), matched=1, changed=changed)
        self.store.put_record(_record(_new_name(entry), entry), replaces=None)

    def _entry(
        self,
        action: str,
        queue: str | None,
        where: Mapping[str, Any] | None,
        ids: Sequence[str] | None,
    ) -> AuditRecord:
        who = caller()
        return AuditRecord(
            self.now(),
            who.actor,
            action,
            queue,
            where,
            ids,
            request_id=who.request_id,
            actor_id=who.actor_id,
        )

    def new_name(self) -> str:
        """Return a name for an entry of now."""
        return _new_name(AuditRecord(self.now(), "", ""))

    def begin(self, name: str, entry: AuditRecord) -> None:
        """Write the first entry of an action under *name*; an entry that is there stays."""
        self.store.put_record(_record(name, entry), replaces=None)

    def write(self, name: str, entry: AuditRecord) -> None:
        """Write the entry of this *name*, whatever was there."""
        self.store.renew_record(_record(name, entry))

    def revise(self, name: str, *, changed: int) -> None:
        """Note of an action that has gone on in the background how many it *changed* in all."""
        record = self.store.record(KIND, name)
        if record is not None:
            body = {**record.body, "matched": changed, "changed": changed}
            revised = replace(record, body=body, version=record.version + 1)
            self.store.put_record(revised, replaces=record.version)

    def list(
        self, where: AuditFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Found[AuditRecord]:
        """Return a page of the entries about the caller's queues, newest first.

        Raises InvalidRequest for a forged cursor, and naming ``from`` for a span that ends before
        it begins.
        """
        now, scope = self.now(), f"audit {where} {where.matching.text}"
        where = where.narrowed(now)
        where.check_span()
        oldest = max(now - KEPT, where.since or now - KEPT)

        def meant(record: Record) -> AuditRecord | None:
            entry = _shown(_entry(record))
            own = not restricted() or visible(entry.queue or "")
            return entry if own and where.matches(entry, now) else None

        return seek(
            self.store,
            KIND,
            meant,
            self.service.cursors,
            scope,
            limit=limit,
            cursor=cursor,
            first="" if where.before is None else _countdown(where.before),
            through=f"{_countdown(oldest)}~",  # entries of that instant have a name behind it
            now=self.now,
            text_of=lambda _, entry: _text(entry),
        )


_ENTRY_FIELDS: Final = frozenset(one.name for one in fields(AuditRecord))


def checked_reason(reason: str, *, name: str = "reason") -> str:
    """Return *reason* without what is around it.  Raises InvalidRequest naming the field."""
    text = reason.strip()
    if len(text.encode("utf-8", "surrogatepass")) > limits.REASON_BYTES:
        raise InvalidRequest.of(name, f"must have at most {limits.REASON_BYTES} bytes")
    return text


def _text(entry: AuditRecord) -> str:
    """Return the long part of *entry*, as an answer shows it."""
    long = [
        entry.actor, entry.queue, entry.filter, entry.ids,
        entry.reason, entry.before, entry.after, entry.left,
    ]  # fmt: skip
    return json.dumps(long, ensure_ascii=False, default=str)


def _new_name(entry: AuditRecord) -> str:
    """Return a name for its record: newest first, so it counts down with time."""
    return f"{_countdown(entry.at)}-{new_task_id(entry.at)[-10:]}"


def _countdown(at: datetime) -> str:
    """Return a name that sorts later the earlier *at* is, microseconds included."""
    micros = int(at.timestamp()) * 1_000_000 + at.microsecond
    return f"{10**16 - micros:017d}"


def _record(name: str, entry: AuditRecord) -> Record:
    return Record(KIND, name, body_of(entry), expires_at=entry.at + KEPT)


def _entry(record: Record) -> AuditRecord:
    # An entry is only shown: fields of a newer version are left out.
    body = {name: value for name, value in record.body.items() if name in _ENTRY_FIELDS}
    return AuditRecord(**{**body, "at": datetime.fromisoformat(body["at"])})


_TOLD: Final = ("on_end.queue", "alerts.queue")
"""Settings that name another queue, which the caller may not be allowed to see."""


def _shown(entry: AuditRecord) -> AuditRecord:
    """Return *entry* without the names of queues that the caller may not know."""
    if not restricted():
        return entry

    def shown(values: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any] | None:
        named = {name: values.get(name) for name in names} if values else {}
        hidden = {name: None for name, queue in named.items() if queue and not visible(queue)}
        return {**(values or {}), **hidden} if hidden else values

    return replace(
        entry,
        filter=shown(entry.filter, "to_queue"),
        before=shown(entry.before, *_TOLD),
        after=shown(entry.after, *_TOLD),
    )


_HEADERS: Final = "target.headers."
_FIELDS: Final = 32  # of one change that are kept
_VALUE: Final = 200  # characters of one
_OTHER: Final = f"{MASK} (another)"

Values: TypeAlias = dict[str, Any]


def changed_settings(before: QueueSettings, after: QueueSettings) -> tuple[Values, Values]:
    """Return the earlier and the new values of settings that differ, by path; None if absent.

    The values of a target's headers are masked, long ones are cut, and of many fields only the
    first by name are kept.
    """
    was, now = dict(_flat(body_of(before))), dict(_flat(body_of(after)))
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))[:_FIELDS]
    old, new = ({name: _kept(name, one.get(name)) for name in names} for one in (was, now))
    for name in names:
        if old[name] == new[name]:  # masked, or cut before they differ
            new[name] = _OTHER if name.startswith(_HEADERS) else f"{new[name]} (another)"
    return old, new


def _flat(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        elif value not in (None, "", []):
            yield f"{path}{name}", value


def _kept(name: str, value: object) -> object:
    if value is not None and name.startswith(_HEADERS):
        return MASK
    text = str(value)
    return value if len(text) <= _VALUE else f"{text[:_VALUE]}…"
