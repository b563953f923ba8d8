"""What people do with queues: create, look, change, pause, purge, delete.

Purge and delete begin a job before they remove the first task, and the reaper resumes the job if
this process ends; see ``jobs``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain import access
from headrace.domain.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    QueueExists,
    Unavailable,
    VersionMismatch,
)
from headrace.domain.ids import new_request_token
from headrace.domain.limits import NAME, NAME_RE, pattern_in_words
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.operate import Undo
from headrace.domain.queue import Pause, Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import DEFAULT_RETRY, Seconds
from headrace.domain.task import ORDINARY, State
from headrace.ops.shared.audit import changed_settings, checked_reason
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.queue_checks import checked_settings
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.call_scope import caller, visible
from headrace.store.records import queues as queue_records
from headrace.store.records import schedules as schedule_records
from headrace.store.records.jobs import JobKind, QueueJob, deletion_of
from headrace.store.records.queues import KNOWN_AFTER, build_anew, change_index, index_of

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_PAGE: Final = 250


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """How many tasks are gone so far, and whether that is all."""

    deleted: int
    finished: bool
    undo: Undo | None = None


class QueueOperations(ServicePart):
    """The use cases of queues.

    *cache_seconds* is how old settings may be when tasks are handled; changes made through this
    object are seen by it at once.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.cache_seconds: float = service.settings.settings_ttl_seconds
        self._cache: dict[str, tuple[datetime, Queue]] = {}

    def create(self, name: str, settings: QueueSettings) -> Queue:
        """Create a queue.  Raises QueueExists, also while one of this name is being deleted.

        Raises InvalidRequest for a target that may be none, and for who cannot be told.
        """
        if not NAME_RE.fullmatch(name):
            raise InvalidRequest.of("name", pattern_in_words(NAME))
        settings = checked_settings(self, name, settings, None)
        before = self.service.jobs.find(deletion_of(name))
        if before is not None and not before.rounds:
            raise QueueExists(f"queue {name} is still being deleted; try again later")
        now = self.now()
        # Processes with cached settings still use the shards and lanes of the deleted queue.
        shards = max(settings.shards, before.shards if before else 0)
        lanes = settings.lanes | (before.lanes if before else ORDINARY)
        queue = Queue(
            name,
            settings,
            now,
            now,
            shards_in_use=shards,
            shards_ever=shards,
            lanes_in_use=lanes,
            lanes_ever=lanes,
            alerts_since=None if settings.alerts is None else now,
            on_end_for=_caller_patterns() if settings.on_end else (),
            pause=_pause_by(now) if settings.dequeuing_settings.dequeuing_paused else None,
        )
        with self.service.audit.action("create_queue", queue=name):
            if not self.store.put_record(queue_records.to_record(queue), replaces=None):
                raise QueueExists(f"queue {name} exists")
            if settings.indexed_fields:
                self._index(name, settings.indexed_fields)
        return self._remember(queue)

    def get(self, name: str) -> Queue:
        """Return a queue, as last written.  Raises NotFound."""
        return self._stored(name).as_seen(self.now())

    def cached(self, name: str) -> Queue:
        """Return a queue, up to *cache_seconds* old.  Raises NotFound."""
        remembered = self._cache.get(name)
        if remembered is not None:
            read_at, queue = remembered
            if (self.now() - read_at).total_seconds() < self.cache_seconds:
                return queue
        return self._stored(name)

    def remembered(self, name: str) -> Queue | None:
        """Return a queue as it was last read here, however long ago that was."""
        found = self._cache.get(name)
        return None if found is None else found[1]

    def max_retries(self, name: str) -> int:
        """Return the retries that a queue allows; never raise.

        An answer must go out, because tasks may be leased by then.  So while the store does not
        answer, the last known settings count as new.
        """
        queue = None
        try:
            queue = self.cached(name)
        except NotFound:  # the queue was deleted, with its tasks
            pass
        except Unavailable:
            if (queue := self.remembered(name)) is not None:
                self._remember(queue)
        return (queue.settings.retry_strategy if queue else DEFAULT_RETRY).max_retries

    def list(
        self,
        *,
        prefix: str = "",
        where: ListQuery[Queue] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[Queue]:
        """Return a page of the caller's queues by name.  Raises InvalidRequest for a forged cursor.

        A page may be short or empty and still have a cursor; see ``paging``.  Only names that begin
        as the patterns of the caller do are read.
        """
        now, patterns = self.now(), caller().patterns
        head = access.common_head(patterns)
        if not head.startswith(prefix) and not prefix.startswith(head):
            return Found((), None)

        def meant(record: Record) -> Record | None:
            own = visible(record.name)
            if own and where.terms:
                own = where.matches(queue_records.from_record(record).as_seen(now), now)
            return record if own else None

        found = seek(
            self.store,
            queue_records.KIND,
            meant,
            self.service.cursors,
            f"queues {prefix} of {patterns} {where.text}",
            limit=limit,
            cursor=cursor,
            prefix=max(head, prefix, key=len),
            now=self.now,
        )
        shown = tuple(queue_records.from_record(record).as_seen(now) for record in found.shown)
        return Found(shown, found.cursor)

    def every(self) -> Iterator[Queue]:
        """Yield all queues, by name."""
        for record in every_record(self.store, queue_records.KIND, page=_PAGE):
            yield queue_records.from_record(record).as_seen(self.now())

    def replace(self, name: str, settings: QueueSettings, *, version: int | None = None) -> Queue:
        """Replace the settings; *version*, when given, must be the stored one.

        Raises NotFound and VersionMismatch, and InvalidRequest as create() does.
        """
        seen: list[QueueSettings] = []

        def change(queue: Queue) -> Queue:
            seen.append(queue.settings)
            if version is not None and version != queue.version:
                raise VersionMismatch(f"queue {name} has version {queue.version}, not {version}")
            wanted = checked_settings(self, name, settings, queue)
            paused = wanted.dequeuing_settings.dequeuing_paused
            before = queue.pause
            if not queue.settings.dequeuing_settings.dequeuing_paused:
                before = _pause_by(self.now())
            return replace(
                queue.with_settings(wanted, self.now()),
                resume_at=queue.resume_at if paused else None,
                pause=before if paused else None,
                uncounted_since=self._uncounted_since(queue, wanted),
                alerts_since=self._alerts_since(queue, wanted),
                on_end_for=_on_end_for(queue, wanted),
            )

        stored = self._stored(name)
        with self.service.audit.action("update_queue", queue=name) as outcome:
            changed = self._change(stored, change)
            old, new = changed_settings(seen[-1], changed.settings)
            outcome.before, outcome.after = old or None, new or None
            if settings.indexed_fields or stored.settings.indexed_fields:
                self._index(name, settings.indexed_fields)
            return changed

    def pause(
        self, name: str, *, resume_in_seconds: Seconds | None = None, reason: str = ""
    ) -> Queue:
        """Stop deliveries, for good or for a time; *reason* is why, for others to read.

        Raises NotFound, and InvalidRequest naming ``reason``.
        """
        why = checked_reason(reason)
        until = None
        if resume_in_seconds is not None:
            until = self.now() + timedelta(seconds=resume_in_seconds)
        stored = self._stored(name)
        with self.service.audit.action("pause", queue=name, reason=why):
            pause = _pause_by(self.now(), why)
            return self._change(stored, lambda queue: _paused(queue, pause, resume_at=until))

    def resume(self, name: str) -> Queue:
        """Let deliveries go on.  Raises NotFound."""
        stored = self._stored(name)
        with self.service.audit.action("resume", queue=name):
            return self._change(stored, lambda queue: _paused(queue, None))

    def reindex(self, name: str) -> Queue:
        """Rebuild the index of values; lists read each task until it is complete.

        Raises NotFound, and Conflict if the queue has no indexed fields.
        """
        queue = self.get(name)
        if not queue.settings.indexed_fields:
            message = (
                f"queue {name} has no indexed_fields, so there is nothing to build: name some in "
                "its settings first, such as tag:tenant or payload.order.id "
                f"(headrace queue edit {name} --set 'indexed_fields=[\"tag:tenant\"]')"
            )
            raise Conflict(message)
        with self.service.audit.action("reindex", queue=name):
            now = self.now()
            self._begin_index(name, now)
            build_anew(self.store, name, now)
        return queue

    def rotate_signing(self, name: str) -> Queue:
        """Let another secret sign what the target gets; the one before does too for a day.

        Raises NotFound.
        """
        stored = self._stored(name)
        with self.service.audit.action("rotate_signing_secret", queue=name):
            return self._change(
                stored,
                lambda queue: replace(
                    queue,
                    signing_generation=queue.signing_generation + 1,
                    rotated_at=self.now(),
                ),
            )

    def purge(
        self, name: str, states: tuple[State, ...], *, undo_in_seconds: Seconds = 0
    ) -> PurgeResult:
        """Remove the tasks in *states* whose life in the queue began before now.  Raises NotFound.

        A task counts by its state when the purge reaches it.  Settings stay.  The result says
        what brings the tasks back within *undo_in_seconds*; 0: nothing.
        """
        queue = self._stored(name)
        where = {"state": ",".join(states)}
        with self.service.audit.action("purge", queue=name, where=where, by_parts=True) as outcome:
            undo = self.service.undos.begin(name, undo_in_seconds)
            outcome.undo = None if undo is None else undo.id
            job = replace(
                self._removal(queue, JobKind.PURGE, states),
                name=f"{JobKind.PURGE}:{name}:{new_request_token()}",
                audit=outcome.entry,
                undo=None if undo is None else undo.id,
            )
            self.service.jobs.begin(job)
            done = self.service.jobs.work(job)
            outcome.matched = outcome.changed = done.count
        return PurgeResult(done.count, done.visited or done.rounds > 0, undo)

    def delete(self, name: str) -> bool:
        """Remove a queue and all its tasks; return whether that is complete.  Raises NotFound.

        Nothing of the queue can be reached after its record is removed.
        """
        queue = self._stored(name)
        job = self._removal(queue, JobKind.DELETE_QUEUE, tuple(State))
        with self.service.audit.action("delete_queue", queue=name):
            self.service.jobs.begin(job)
            if index_of(self.store, name) is not None:
                self._begin_index(name, job.as_of)
            self.store.drop_record(queue_records.KIND, name)
            schedule_records.drop_all(self.store, name)
            if queue.alerts_since is not None:
                self.store.drop_record(queue_records.ALERTS, name)
            self._cache.pop(name, None)
            done = self.service.jobs.work(job)
            return done.visited or done.rounds > 0

    def _index(self, name: str, fields: tuple[str, ...]) -> None:
        """Index *fields* and no others; the job begins first, so that no crash leaves it out."""
        index, now = index_of(self.store, name), self.now()
        if fields != (() if index is None else index.wanted):
            self._begin_index(name, now)
            change_index(self.store, name, fields, now)

    def _begin_index(self, name: str, now: datetime) -> None:
        job = JobKind.BUILD_INDEX
        not_before = now + KNOWN_AFTER
        self.service.jobs.begin(
            QueueJob(name=f"{job}:{name}", kind=job, queue=name, as_of=now, not_before=not_before)
        )

    def _removal(self, queue: Queue, kind: JobKind, states: tuple[State, ...]) -> QueueJob:
        return QueueJob(
            name=deletion_of(queue.name),
            kind=kind,
            queue=queue.name,
            as_of=self.now(),
            states=states,
            shards=queue.shards_ever,
            lanes=queue.lanes_ever,
        )

    def _uncounted_since(self, queue: Queue, settings: QueueSettings) -> datetime | None:
        """Tell since when tasks may be in flight that the limit of *settings* does not count."""
        before = queue.settings.dequeuing_settings.max_inflight_tasks
        limit = settings.dequeuing_settings.max_inflight_tasks
        if limit and (before == 0 or limit < before):
            return self.now()
        return queue.uncounted_since if limit else None

    def _alerts_since(self, queue: Queue, settings: QueueSettings) -> datetime | None:
        """Tell since when the queue has alerts, if it has any with *settings*."""
        if settings.alerts is None:
            return None
        return queue.alerts_since if queue.settings.alerts is not None else self.now()

    def _stored(self, name: str) -> Queue:
        record = self.store.record(queue_records.KIND, name)
        if record is None:
            self._cache.pop(name, None)
            raise NotFound(f"there is no queue {name}")
        return self._remember(queue_records.from_record(record))

    def _remember(self, queue: Queue) -> Queue:
        self._cache[queue.name] = (self.now(), queue)
        return queue

    def _change(self, stored: Queue, change: Callable[[Queue], Queue]) -> Queue:
        """Apply *change* to a queue as read; read it again after a conflicting write."""
        while True:
            changed = replace(
                change(stored.as_seen(self.now())),
                version=stored.version + 1,
                updated_at=self.now(),
            )
            record = queue_records.to_record(changed)
            if self.store.put_record(record, replaces=stored.version):
                return self._remember(changed)
            stored = self._stored(stored.name)


def _pause_by(now: datetime, reason: str = "") -> Pause:
    return Pause(now, caller().actor, reason)


def _paused(queue: Queue, pause: Pause | None, resume_at: datetime | None = None) -> Queue:
    dequeuing = replace(queue.settings.dequeuing_settings, dequeuing_paused=pause is not None)
    settings = replace(queue.settings, dequeuing_settings=dequeuing)
    return replace(queue, settings=settings, resume_at=resume_at, pause=pause)


def _caller_patterns() -> tuple[str, ...]:
    """Return the patterns of the key that is calling; none for all queues."""
    patterns = caller().patterns
    return () if "*" in patterns else patterns


def _on_end_for(queue: Queue, wanted: QueueSettings) -> tuple[str, ...]:
    """Return whose ``on_end`` it is: that of the key which changes it."""
    if wanted.on_end is None:
        return ()
    return queue.on_end_for if wanted.on_end == queue.settings.on_end else _caller_patterns()
