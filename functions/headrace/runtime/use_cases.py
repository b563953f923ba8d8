"""The use cases and what each is built over.

Each is a property that says what it is built over.  It is built when it is first used, and only
then is its module imported: a Lambda function starts with what it calls and no more.  Imported all
at once, they would double what the scheduler's function takes to start.

Long, because it is a list: one property for each, and nothing is decided here.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from datetime import datetime
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.domain.offload import ObjectStore
from headrace.runtime.settings import Settings
from headrace.store.base import Lake, Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.history.counters import Counters
    from headrace.history.errors import ErrorOperations
    from headrace.history.flows import Flows
    from headrace.history.listening import Listening
    from headrace.history.proof import Proofs
    from headrace.history.recorder import Recording
    from headrace.history.recounting import BatchRecounting, Recounting
    from headrace.history.stats import StatsOperations
    from headrace.ops.delivery.dequeue import Deliveries
    from headrace.ops.delivery.end_webhooks import EndWebhooks
    from headrace.ops.delivery.idempotency import DeliveryBatches
    from headrace.ops.delivery.indexing import Indexing
    from headrace.ops.delivery.orphans import Orphans
    from headrace.ops.delivery.push import PushDispatch
    from headrace.ops.delivery.push_waking import PushWaking
    from headrace.ops.delivery.reaper import Reaper
    from headrace.ops.delivery.reports import Reports
    from headrace.ops.operators.action_work import ActionWork
    from headrace.ops.operators.actions import ActionOperations
    from headrace.ops.operators.bulk import BulkOperations
    from headrace.ops.operators.keys import KeyOperations
    from headrace.ops.operators.search import Search
    from headrace.ops.operators.selections import Selections
    from headrace.ops.operators.sessions import Attempts, Sessions
    from headrace.ops.operators.undo import Undoing
    from headrace.ops.operators.views import SavedViews
    from headrace.ops.operators.workers import WorkerOperations
    from headrace.ops.scheduling.alerts import Alerts
    from headrace.ops.scheduling.schedules import Schedules
    from headrace.ops.scheduling.ticking import Ticking
    from headrace.ops.shared.audit import Audit
    from headrace.ops.shared.group_limits import GroupLimits
    from headrace.ops.shared.jobs import Jobs, JobVisitor
    from headrace.ops.shared.leases import Leases
    from headrace.ops.shared.limiting import Limiting
    from headrace.ops.shared.lines import Lines
    from headrace.ops.shared.observed import LeaseWatch
    from headrace.ops.shared.offloaded import OffloadedTexts
    from headrace.ops.shared.paging import Cursors
    from headrace.ops.shared.push_status import PushLooks
    from headrace.ops.shared.queues import QueueOperations
    from headrace.ops.shared.removals import Removals
    from headrace.ops.shared.repeats import Repeats
    from headrace.ops.shared.signing import Signing
    from headrace.ops.shared.slots import Slots
    from headrace.ops.shared.stack_secret import DerivedIds
    from headrace.ops.shared.undos import Undos
    from headrace.ops.tasks.batches import BatchOperations
    from headrace.ops.tasks.cancel import Cancelling
    from headrace.ops.tasks.cancel_batch import BatchCancelling
    from headrace.ops.tasks.enqueue import TaskOperations
    from headrace.ops.tasks.explain import Explain
    from headrace.ops.tasks.fair_groups import FairGroups
    from headrace.ops.tasks.inspect import Inspect
    from headrace.ops.tasks.uploads import Uploads
    from headrace.ops.tasks.wait import Waiting
    from headrace.store.records.jobs import Job, JobKind

_T = TypeVar("_T")
_BUILDING: Final = RLock()

ACTIONS: Final = "actions"
"""What an event for the reaper names, to have it work on actions on many tasks."""


class _once(Generic[_T]):  # noqa: N801  used as `property` is
    """A property that is built when it is first asked for, and once, whatever thread asks.

    ``functools.cached_property`` makes no such promise since Python 3.12.
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, use: "UseCases", _owner: type | None = None) -> _T:
        with _BUILDING:
            built = vars(use)  # from now on looked up here, without coming this way
            if self._name not in built:
                built[self._name] = self._make(use)
            made: _T = built[self._name]
            return made


class UseCases:
    """What an entry point may ask for, over one store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        now: Callable[[], datetime],
        lake: Lake | None,
        objects: ObjectStore | None = None,
    ) -> None:
        self.settings = settings
        self.now = now
        self._tables = store
        self._lake = lake
        self._objects = objects

    def but(self, **others: object) -> "UseCases":
        """Return the same use cases with *others* in place of those of their names."""
        changed = copy(self)
        vars(changed).update(others)
        return changed

    @_once
    def queues(self) -> "QueueOperations":
        from headrace.ops.shared.queues import QueueOperations

        ttl = self.settings.settings_ttl_seconds
        return QueueOperations(
            self._tables,
            self.now,
            self._cursors,
            self._jobs,
            self._removals,
            self.audit,
            ttl,
            self.settings.push,
        )

    @_once
    def tasks(self) -> "TaskOperations":
        from headrace.ops.tasks.enqueue import TaskOperations

        return TaskOperations(
            self._store,
            self._tables,
            self.queues,
            self.now,
            self.audit,
            lambda wanted: self.task_batches.joining(wanted),  # noqa: PLW0108  imported when needed
            self._undos,
            self._group_lines,
            lambda new, queue: self.uploads.faults(new, queue),  # noqa: PLW0108  likewise
            self.derived_ids,
        )

    @_once
    def uploads(self) -> "Uploads":
        from headrace.ops.tasks.uploads import Uploads

        on = self.settings.payload_offload_bytes > 0
        key = sha256(f"payloads {self.settings.admin_key}".encode()).digest()
        return Uploads(self.queues, self._objects, on, key, self.now)

    @_once
    def task_batches(self) -> "BatchOperations":
        from headrace.ops.tasks.batches import BatchOperations

        return BatchOperations(
            self._store,
            self.queues,
            self.now,
            self._cursors,
            self.derived_ids,
            uncounted=lambda: self._counters.uncounted(),  # noqa: PLW0108  imported when needed
        )

    @_once
    def cancelling(self) -> "Cancelling":
        from headrace.ops.tasks.cancel import Cancelling

        return Cancelling(self._store, self.queues, self.now, self.audit)

    @_once
    def batch_cancelling(self) -> "BatchCancelling":
        from headrace.ops.tasks.cancel_batch import BatchCancelling

        return BatchCancelling(
            self.task_batches,
            self.queues,
            self.cancelling,
            self.inspect,
            self._cursors,
            self.audit,
            self.now,
        )

    @_once
    def waiting(self) -> "Waiting":
        from headrace.ops.tasks.wait import Waiting

        poll_after, ends = self.settings.poll_after_seconds, self._tables.ends
        return Waiting(self._store, self.now, poll_after_seconds=poll_after, ends=ends)

    @_once
    def deliveries(self) -> "Deliveries":
        from headrace.ops.delivery.contention import LISTED_FOR, LISTED_WHERE_CHEAP_FOR
        from headrace.ops.delivery.dequeue import Deliveries
        from headrace.ops.shared.group_limits import BLOCKED_FOR, BLOCKED_WHERE_CHEAP_FOR

        arrivals = self._tables.arrivals  # a store that tells of them is asked at no cost
        poll_after = self.settings.poll_after_seconds
        return Deliveries(
            store=self._store,
            tables=self._tables,
            queues=self.queues,
            reaping=self.reaping,
            limiting=self._limiting,
            lines=self._group_lines,
            now=self.now,
            leases=self.leases,
            poll_after_seconds=poll_after,
            arrivals=arrivals,
            look_at_groups_after=BLOCKED_WHERE_CHEAP_FOR if arrivals else BLOCKED_FOR,
            members_listed_for=LISTED_WHERE_CHEAP_FOR if arrivals else LISTED_FOR,
            texts=self.texts,
        )

    @_once
    def texts(self) -> "OffloadedTexts":
        from headrace.ops.shared.offloaded import OffloadedTexts

        return OffloadedTexts(self._objects)

    @_once
    def indexing(self) -> "Indexing":
        from headrace.ops.delivery.indexing import Indexing

        return Indexing(self._store, self.queues, self.inspect, self.texts, self.now)

    @_once
    def orphans(self) -> "Orphans":
        from headrace.ops.delivery.orphans import Orphans

        return Orphans(self._store, self._objects, self.now)

    @_once
    def push(self) -> "PushDispatch":
        from dataclasses import replace
        from functools import partial

        from headrace.ops.delivery.push import PushDispatch
        from headrace.ops.shared.seats import Seat, has_ended

        # Execution environments of Lambda have process ids and host names in common.
        is_gone = has_ended if self.settings.function is None else None
        return PushDispatch(
            store=self._store,
            queues=self.queues,
            deliveries=replace(self.deliveries, pushing=True),
            reports=self.reports,
            leases=self.leases,
            signing=self.signing,
            now=self.now,
            new_seat=partial(Seat, is_gone=is_gone),
        )

    @_once
    def push_looks(self) -> "PushLooks":
        from headrace.ops.shared.push_status import PushLooks

        return PushLooks(self._store, self.now)

    @_once
    def push_waking(self) -> "PushWaking":
        from headrace.ops.delivery.push_waking import PushWaking

        return PushWaking(self.queues, self.push, self.now)

    @_once
    def signing(self) -> "Signing":
        from headrace.ops.shared.signing import Signing
        from headrace.ops.shared.stack_secret import SIGNING, StackSecret

        return Signing(StackSecret(self._tables, SIGNING), self.now)

    @_once
    def derived_ids(self) -> "DerivedIds":
        from headrace.ops.shared.stack_secret import IDS, DerivedIds, StackSecret

        return DerivedIds(StackSecret(self._tables, IDS))

    @_once
    def batches(self) -> "DeliveryBatches":
        from headrace.ops.delivery.idempotency import DeliveryBatches

        return DeliveryBatches(self._tables, self.leases, self.now)

    @_once
    def leases(self) -> "Leases":
        from headrace.ops.shared.leases import Leases

        return Leases(self._store, self.queues, self.now)

    @_once
    def reports(self) -> "Reports":
        from headrace.ops.delivery.reports import Reports
        from headrace.ops.tasks.spawn import Spawning

        lines = self._group_lines
        spawning = Spawning(
            self._store,
            self.queues,
            self.now,
            self.task_batches,
            lines,
            lambda new, queue: self.uploads.faults(new, queue),  # noqa: PLW0108  imported when needed
            self.derived_ids,
        )
        return Reports(self._store, self.queues, self.now, spawning, lines)

    @_once
    def repeats(self) -> "Repeats":
        from headrace.ops.shared.repeats import Repeats

        return Repeats(self._store, self.now)

    @_once
    def inspect(self) -> "Inspect":
        from headrace.ops.tasks.inspect import Inspect

        return Inspect(self._store, self.queues, self.now, self._cursors, texts=self.texts)

    @_once
    def search(self) -> "Search":
        from headrace.ops.operators.search import Search

        return Search(self.inspect, self.queues, self.now)

    @_once
    def views(self) -> "SavedViews":
        from headrace.ops.operators.views import SavedViews

        return SavedViews(self._store, self.queues, self.now)

    @_once
    def fair_groups(self) -> "FairGroups":
        from headrace.ops.tasks.fair_groups import FairGroups

        return FairGroups(self._store, self.queues, self.inspect, self._group_limits, self.now)

    @_once
    def explain(self) -> "Explain":
        from headrace.ops.tasks.explain import Explain

        return Explain(
            self._store,
            self.queues,
            self._limiting,
            self._group_lines,
            self.now,
            lambda queue: self.listening.of(queue),  # noqa: PLW0108  imported when needed
        )

    @_once
    def listening(self) -> "Listening":
        from headrace.history.listening import Listening

        return Listening(self._store, self._counters, self.now)

    @_once
    def flows(self) -> "Flows":
        from headrace.history.flows import Flows

        return Flows(self._counters, self.now)

    @_once
    def errors(self) -> "ErrorOperations":
        from headrace.history.errors import ErrorOperations

        return ErrorOperations(self._counters, self.now)

    @_once
    def bulk(self) -> "BulkOperations":
        from headrace.ops.operators.bulk import BulkOperations

        return BulkOperations(
            self._store,
            self.queues,
            self.inspect,
            self.audit,
            self.now,
            self._cursors,
            self._undos,
            self._group_lines,
        )

    @_once
    def undoing(self) -> "Undoing":
        from headrace.ops.operators.undo import Undoing

        return Undoing(
            self._store,
            self.queues,
            self._undos,
            self.audit,
            self.now,
            self._cursors,
            self._group_lines,
            lambda undo_id: self.actions.give_up(undo_id),  # noqa: PLW0108  imported when needed
        )

    @_once
    def selections(self) -> "Selections":
        from headrace.ops.operators.selections import Selections

        return Selections(self._store, self.queues, self.inspect, self.now)

    @_once
    def actions(self) -> "ActionOperations":
        from headrace.ops.operators.actions import ActionOperations

        return ActionOperations(
            self._store,
            self.selections,
            self.queues,
            self.audit,
            self.now,
            self._cursors,
            self._kick,
        )

    def has_actions(self) -> bool:
        """Tell whether an action on many tasks is under way, or rests."""
        return bool(self._store.records("acting", limit=1)[0])

    def _kick(self) -> None:
        """Have the service look for work on actions now; if that fails, its timer does."""
        if self.settings.reaper is None:
            return
        from headrace.domain.errors import Unavailable
        from headrace.store.services import invoke

        with suppress(Unavailable):
            invoke(self.settings.reaper, {ACTIONS: True})

    @_once
    def action_work(self) -> "ActionWork":
        from headrace.ops.operators.action_work import ActionWork

        keys = self.keys
        return ActionWork(self._store, self.actions, self.bulk, self._undos, keys, self.now)

    @_once
    def audit(self) -> "Audit":
        from headrace.ops.shared.audit import Audit

        return Audit(self._store, self.now, self._cursors)

    @_once
    def keys(self) -> "KeyOperations":
        from headrace.ops.operators.keys import KeyOperations, admin_named

        settings = self.settings
        return KeyOperations(
            self._store,
            self.now,
            self._cursors,
            self.audit,
            settings.admin_key,
            settings.settings_ttl_seconds,
            admin_named(settings.admin_name),
        )

    @_once
    def attempts(self) -> "Attempts":
        from headrace.ops.operators.sessions import Attempts

        return Attempts(self._store, self.now, self.keys)

    @_once
    def sessions(self) -> "Sessions":
        from headrace.ops.operators.sessions import Sessions

        return Sessions(self._store, self.now, self.keys, self.attempts, self.audit)

    @_once
    def reaping(self) -> "Reaper":
        from headrace.ops.delivery.reaper import Reaper
        from headrace.ops.delivery.reaping import Upkeep

        return Reaper(
            store=self._store,
            now=self.now,
            watch=self._watch,
            queues=self.queues,
            jobs=self._jobs,
            visitors=self._visitors,
            standing_jobs=self._standing_jobs,
            leases=self.leases,
            upkeep=Upkeep(self._store, self._slots, self.now),
            alerts=lambda: self.alerts.begin_pass().check,
            dead_counts=lambda: self._counters.totals().dead,
        )

    def _visitors(self) -> "Mapping[JobKind, JobVisitor]":
        from headrace.store.records.jobs import JobKind

        return {
            JobKind.PURGE: self._removals,
            JobKind.DELETE_QUEUE: self._removals,
            JobKind.BUILD_INDEX: self.indexing,
            JobKind.DROP_ORPHANS: self.orphans,
        }

    def _standing_jobs(self) -> "Sequence[Job]":
        from headrace.ops.delivery.orphans import EVERY_OBJECT

        return () if self._objects is None else (EVERY_OBJECT,)

    @_once
    def alerts(self) -> "Alerts":
        from headrace.ops.scheduling.alerts import Alerts

        return Alerts(
            self._store,
            self.queues,
            self._counters,
            lambda: self._group_lines,
            self.now,
            self.derived_ids,
        )

    @_once
    def recording(self) -> "Recording":
        from headrace.history.changelog import Changelog
        from headrace.history.matching import Matching
        from headrace.history.recorder import Recording

        lake = self._lake
        changelog = None if lake is None else Changelog(lake, self.settings.lake_payloads)
        matching = Matching(self._store, self.texts, self.now)
        return Recording(self._counters, changelog, self._objects, self.end_webhooks, matching)

    @_once
    def end_webhooks(self) -> "EndWebhooks":
        from headrace.ops.delivery.end_webhooks import EndWebhooks

        return EndWebhooks(
            self._store,
            self.queues,
            self.texts,
            lambda: self._group_lines,
            self.now,
            self.derived_ids,
        )

    @_once
    def recounting(self) -> "Recounting":
        from headrace.history.recounting import Recounting

        counters, audit = self._counters, self.audit
        return Recounting(self._store, self.queues, counters, self._cursors, audit, self.now)

    @_once
    def batch_recounting(self) -> "BatchRecounting":
        from headrace.history.recounting import BatchRecounting

        batches, audit = self.task_batches, self.audit
        return BatchRecounting(self._store, batches, self._cursors, audit, self.now)

    @_once
    def schedules(self) -> "Schedules":
        from headrace.ops.scheduling.schedules import Schedules

        return Schedules(self._store, self.ticking, self.audit, self.now)

    @_once
    def stats(self) -> "StatsOperations":
        from headrace.history.series import Archive
        from headrace.history.stats import StatsOperations

        archive = None if self._lake is None else Archive(self._lake)
        return StatsOperations(
            self._store,
            self.queues,
            self.inspect,
            self._counters,
            self.now,
            self.fair_groups,
            archive,
        )

    @_once
    def proofs(self) -> "Proofs":
        from headrace.history.proof import Proofs

        return Proofs(self._lake)

    @_once
    def ticking(self) -> "Ticking":
        from headrace.ops.scheduling.ticking import Ticking, TickTasks
        from headrace.runtime.cron import read_cron

        secret = self.derived_ids.secret
        tasks = TickTasks(self._store, self.now, read_cron, secret)
        return Ticking(self._store, self.queues, tasks, self.now, read_cron)

    @_once
    def workers(self) -> "WorkerOperations":
        from headrace.ops.operators.workers import WorkerOperations

        return WorkerOperations(self._store, self.now, self._cursors, self.audit)

    # What they share.

    @_once
    def _store(self) -> Store:
        from headrace.ops.shared.observed import Observed

        groups = self._group_limits
        return Observed(self._tables, self._slots, groups, self._watch).store

    @_once
    def _watch(self) -> "LeaseWatch":
        from headrace.ops.shared.observed import LeaseWatch

        return LeaseWatch()

    @_once
    def _cursors(self) -> "Cursors":
        from headrace.ops.shared.paging import Cursors

        return Cursors(sha256(f"cursor {self.settings.admin_key}".encode()).digest())

    @_once
    def _limiting(self) -> "Limiting":
        from headrace.ops.shared.limiting import Limiting, Tokens

        return Limiting(self._slots, Tokens(self._tables, self.now), self._group_limits)

    @_once
    def _slots(self) -> "Slots":
        from headrace.ops.shared.slots import Slots

        return Slots(self._tables, self.now)

    @_once
    def _group_limits(self) -> "GroupLimits":
        from headrace.ops.shared.group_limits import GroupLimits

        return GroupLimits(self._tables, self.now)

    @_once
    def _group_lines(self) -> "Lines":
        from headrace.ops.shared.lines import Lines

        return Lines(self._store, self.now)

    @_once
    def _removals(self) -> "Removals":
        from headrace.ops.shared.removals import Removals

        return Removals(self._store, self.now, self._limiting, self._undos)

    @_once
    def _jobs(self) -> "Jobs":
        from headrace.ops.shared.jobs import Jobs

        return Jobs(self._store, self.now, self.audit)

    @_once
    def _undos(self) -> "Undos":
        from headrace.ops.shared.undos import Undos

        return Undos(self._store, self.now)

    @_once
    def _counters(self) -> "Counters":
        from headrace.history.counters import Counters

        return Counters(self._store, self.now, batches=self.task_batches)
