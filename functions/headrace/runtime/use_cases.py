"""The use cases and what each is built over.

Each is a property that says what it is built over.  It is built when it is first used, and only
then is its module imported: a Lambda function starts with what it calls and no more.  Imported all
at once, they would double what the scheduler's function takes to start.
"""

from collections.abc import Callable
from copy import copy
from datetime import datetime
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.runtime.settings import Settings
from headrace.store.base import Lake, Store

if TYPE_CHECKING:
    from headrace.history.counters import Counters
    from headrace.history.flows import Flows
    from headrace.history.proof import Proofs
    from headrace.history.recorder import Recording
    from headrace.history.recounting import Recounting
    from headrace.history.stats import StatsOperations
    from headrace.ops.delivery.dequeue import Deliveries
    from headrace.ops.delivery.idempotency import DeliveryBatches
    from headrace.ops.delivery.reaper import Reaper
    from headrace.ops.delivery.reports import Reports
    from headrace.ops.operators.bulk import BulkOperations
    from headrace.ops.operators.keys import KeyOperations
    from headrace.ops.operators.selections import Selections
    from headrace.ops.operators.sessions import Attempts, Sessions
    from headrace.ops.operators.workers import WorkerOperations
    from headrace.ops.scheduling.schedules import Schedules
    from headrace.ops.scheduling.ticking import Ticking
    from headrace.ops.shared.audit import Audit
    from headrace.ops.shared.leases import Leases
    from headrace.ops.shared.limiting import Limiting
    from headrace.ops.shared.observed import Watch
    from headrace.ops.shared.paging import Cursors
    from headrace.ops.shared.queues import QueueOperations
    from headrace.ops.shared.removals import Removals
    from headrace.ops.shared.repeats import Repeats
    from headrace.ops.shared.slots import Slots
    from headrace.ops.tasks.enqueue import TaskOperations
    from headrace.ops.tasks.explain import Explain
    from headrace.ops.tasks.inspect import Inspect

_T = TypeVar("_T")
_BUILDING: Final = RLock()


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
        self, settings: Settings, store: Store, now: Callable[[], datetime], lake: Lake | None
    ) -> None:
        self.settings = settings
        self.now = now
        self._tables = store
        self._lake = lake

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
            self._store, self.now, self._cursors, self._removals, self.audit, ttl
        )

    @_once
    def tasks(self) -> "TaskOperations":
        from headrace.ops.tasks.enqueue import TaskOperations

        return TaskOperations(self._store, self.queues, self.now, self.audit)

    @_once
    def deliveries(self) -> "Deliveries":
        from headrace.ops.delivery.dequeue import Deliveries

        poll_after = self.settings.poll_after_seconds
        return Deliveries(
            store=self._store,
            queues=self.queues,
            reaping=self.reaping,
            limiting=self._limiting,
            now=self.now,
            leases=self.leases,
            poll_after_seconds=poll_after,
            arrivals=self._tables.arrivals,
        )

    @_once
    def batches(self) -> "DeliveryBatches":
        from headrace.ops.delivery.idempotency import DeliveryBatches

        return DeliveryBatches(self._store, self.leases, self.now)

    @_once
    def leases(self) -> "Leases":
        from headrace.ops.shared.leases import Leases

        return Leases(self._store, self.queues, self.now)

    @_once
    def reports(self) -> "Reports":
        from headrace.ops.delivery.reports import Reports
        from headrace.ops.tasks.spawn import Spawning

        spawning = Spawning(self._store, self.queues, self.now)
        return Reports(self._store, self.queues, self.now, spawning)

    @_once
    def repeats(self) -> "Repeats":
        from headrace.ops.shared.repeats import Repeats

        return Repeats(self._store, self.now)

    @_once
    def inspect(self) -> "Inspect":
        from headrace.ops.tasks.inspect import Inspect

        return Inspect(self._store, self.queues, self.now, self._cursors)

    @_once
    def explain(self) -> "Explain":
        from headrace.ops.tasks.explain import Explain

        return Explain(self._store, self.queues, self._limiting, self.now)

    @_once
    def flows(self) -> "Flows":
        from headrace.history.flows import Flows

        return Flows(self._counters, self.now)

    @_once
    def bulk(self) -> "BulkOperations":
        from headrace.ops.operators.bulk import BulkOperations

        return BulkOperations(
            self._store, self.queues, self.inspect, self.audit, self.now, self._cursors
        )

    @_once
    def selections(self) -> "Selections":
        from headrace.ops.operators.selections import Selections

        return Selections(self._store, self.queues, self.inspect, self.bulk, self.audit, self.now)

    @_once
    def audit(self) -> "Audit":
        from headrace.ops.shared.audit import Audit

        return Audit(self._store, self.now, self._cursors)

    @_once
    def keys(self) -> "KeyOperations":
        from headrace.ops.operators.keys import KeyOperations

        admin, ttl = self.settings.admin_key, self.settings.settings_ttl_seconds
        return KeyOperations(self._store, self.now, self._cursors, self.audit, admin, ttl)

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
            removals=self._removals,
            leases=self.leases,
            upkeep=Upkeep(self._store, self._slots, self.now),
        )

    @_once
    def recording(self) -> "Recording":
        from headrace.history.changelog import Changelog
        from headrace.history.recorder import Recording

        lake = self._lake
        changelog = None if lake is None else Changelog(lake, self.settings.lake_payloads)
        return Recording(self._counters, changelog)

    @_once
    def recounting(self) -> "Recounting":
        from headrace.history.recounting import Recounting

        counters, audit = self._counters, self.audit
        return Recounting(self._store, self.queues, counters, self._cursors, audit, self.now)

    @_once
    def schedules(self) -> "Schedules":
        from headrace.ops.scheduling.schedules import Schedules

        return Schedules(self._store, self.ticking, self.audit, self.now)

    @_once
    def stats(self) -> "StatsOperations":
        from headrace.history.metrics import Archive
        from headrace.history.stats import StatsOperations

        archive = None if self._lake is None else Archive(self._lake)
        return StatsOperations(
            self._store, self.queues, self.inspect, self._counters, self.now, archive
        )

    @_once
    def proofs(self) -> "Proofs":
        from headrace.history.proof import Proofs

        return Proofs(self._lake)

    @_once
    def ticking(self) -> "Ticking":
        from headrace.ops.scheduling.ticking import Ticking, TickTasks
        from headrace.runtime.cron import read_cron

        tasks = TickTasks(self._store, self.now, read_cron)
        return Ticking(self._store, self.queues, tasks, self.now, read_cron)

    @_once
    def workers(self) -> "WorkerOperations":
        from headrace.ops.operators.workers import WorkerOperations

        return WorkerOperations(self._store, self.now, self._cursors, self.audit)

    # What they share.

    @_once
    def _store(self) -> Store:
        from headrace.ops.shared.observed import Observed

        return Observed(self._tables, self._slots, self._watch).store

    @_once
    def _watch(self) -> "Watch":
        from headrace.ops.shared.observed import Watch

        return Watch()

    @_once
    def _cursors(self) -> "Cursors":
        from headrace.ops.shared.paging import Cursors

        return Cursors(sha256(f"cursor {self.settings.admin_key}".encode()).digest())

    @_once
    def _limiting(self) -> "Limiting":
        from headrace.ops.shared.limiting import Limiting, Tokens

        return Limiting(self._slots, Tokens(self._tables, self.now))

    @_once
    def _slots(self) -> "Slots":
        from headrace.ops.shared.slots import Slots

        return Slots(self._tables, self.now)

    @_once
    def _removals(self) -> "Removals":
        from headrace.ops.shared.removals import Removals

        return Removals(self._store, self.now, self._limiting, self.audit)

    @_once
    def _counters(self) -> "Counters":
        from headrace.history.counters import Counters

        return Counters(self._store, self.now)
