"""The service over one store: what its parts share, and the parts.

Each part is imported and built when it is first used, so that a Lambda function starts with the
parts that it calls.  To import all of them would double the start of the scheduler's function.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from random import Random
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_chance
from headrace.domain.offload import Lake, ObjectStore
from headrace.runtime.settings import Settings
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.history.counters import Counters
    from headrace.history.errors import ErrorOperations
    from headrace.history.flows import Flows
    from headrace.history.listening import Listening
    from headrace.history.proof import Proofs
    from headrace.history.recorder import Recording
    from headrace.history.recounting import BatchRecounting, Recounting
    from headrace.history.stats import StatsOperations
    from headrace.ops.delivery.deliveries import Deliveries
    from headrace.ops.delivery.end_webhooks import EndWebhooks
    from headrace.ops.delivery.push import PushDispatch
    from headrace.ops.delivery.reaper import Reaper
    from headrace.ops.delivery.report_calls import Reports
    from headrace.ops.delivery.shard_deliveries import ShardDeliveries
    from headrace.ops.operators.action_work import ActionWork
    from headrace.ops.operators.actions import ActionOperations
    from headrace.ops.operators.bulk import BulkOperations
    from headrace.ops.operators.keys import KeyOperations
    from headrace.ops.operators.sessions import Sessions
    from headrace.ops.operators.snoozes import Snoozes
    from headrace.ops.operators.undo import Undos
    from headrace.ops.operators.workers import WorkerOperations
    from headrace.ops.scheduling.alerts import Alerts
    from headrace.ops.scheduling.schedules import Schedules
    from headrace.ops.scheduling.tick_tasks import TickTasks
    from headrace.ops.scheduling.ticking import Ticking
    from headrace.ops.search.indexing import Indexing, Matching
    from headrace.ops.search.search import Search
    from headrace.ops.shared.audit import Audit
    from headrace.ops.shared.group_limits import GroupLimits
    from headrace.ops.shared.jobs import Jobs, Orphans, Removals
    from headrace.ops.shared.leases import Leases
    from headrace.ops.shared.limiting import Tokens
    from headrace.ops.shared.lines import Lines
    from headrace.ops.shared.paging import Cursors
    from headrace.ops.shared.push_status import PushTargets
    from headrace.ops.shared.queues import QueueOperations
    from headrace.ops.shared.repeats import Repeats
    from headrace.ops.shared.slots import Slots
    from headrace.ops.shared.stack_secret import DerivedIds, Signing
    from headrace.ops.shared.versions import Versions
    from headrace.ops.tasks.batch_writes import BatchWrites
    from headrace.ops.tasks.batches import BatchOperations
    from headrace.ops.tasks.cancel import BatchCancelling, Cancelling
    from headrace.ops.tasks.enqueue import TaskOperations
    from headrace.ops.tasks.explain import Explain
    from headrace.ops.tasks.fair_groups import FairGroups
    from headrace.ops.tasks.inspect import Inspect
    from headrace.ops.tasks.spawn import Spawning
    from headrace.ops.tasks.uploads import OffloadedTexts, Uploads
    from headrace.ops.tasks.wait import Waiting

WORK_ON_ACTIONS: Final = "actions"
"""The field of an event that has the reaper's function work on actions."""

_BUILDING: Final = RLock()


class _Part:
    """A part that the first thread that uses it imports and builds.

    ``functools.cached_property`` may build a part twice when two threads use it first.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._class = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, service: "Service", owner: type) -> object:
        with _BUILDING:
            parts = vars(service)  # where Python finds the part from then on
            if self._name not in parts:
                parts[self._name] = getattr(import_module(self._module), self._class)(service)
            return parts[self._name]


def _part(module: str, name: str) -> Any:  # noqa: ANN401  each has its own type
    return _Part(module, name)


class Service:
    """The use cases over *store*, and what they share.

    *now*, *sleep*, *monotonic* and *random* are all that the parts know of time and chance.
    *objects* holds large texts of tasks, and *lake* the history; both are optional.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        now: Callable[[], datetime],
        lake: Lake | None = None,
        objects: ObjectStore | None = None,
        random: Random | None = None,
    ) -> None:
        self.settings = settings
        self.now = now
        self.lake = lake
        self.objects = objects
        self.random = new_chance() if random is None else random
        self.sleep: Callable[[float], None] = time.sleep
        self.monotonic: Callable[[], float] = time.monotonic
        self.store = store

    # Queues and tasks.
    queues: "QueueOperations" = _part("headrace.ops.shared.queues", "QueueOperations")
    tasks: "TaskOperations" = _part("headrace.ops.tasks.enqueue", "TaskOperations")
    uploads: "Uploads" = _part("headrace.ops.tasks.uploads", "Uploads")
    batch_writes: "BatchWrites" = _part("headrace.ops.tasks.batch_writes", "BatchWrites")
    task_batches: "BatchOperations" = _part("headrace.ops.tasks.batches", "BatchOperations")
    cancelling: "Cancelling" = _part("headrace.ops.tasks.cancel", "Cancelling")
    batch_cancelling: "BatchCancelling" = _part("headrace.ops.tasks.cancel", "BatchCancelling")
    waiting: "Waiting" = _part("headrace.ops.tasks.wait", "Waiting")
    inspect: "Inspect" = _part("headrace.ops.tasks.inspect", "Inspect")
    fair_groups: "FairGroups" = _part("headrace.ops.tasks.fair_groups", "FairGroups")
    explain: "Explain" = _part("headrace.ops.tasks.explain", "Explain")
    spawning: "Spawning" = _part("headrace.ops.tasks.spawn", "Spawning")

    # Delivery.
    deliveries: "Deliveries" = _part("headrace.ops.delivery.deliveries", "Deliveries")
    leases: "Leases" = _part("headrace.ops.shared.leases", "Leases")
    reports: "Reports" = _part("headrace.ops.delivery.report_calls", "Reports")
    reaping: "Reaper" = _part("headrace.ops.delivery.reaper", "Reaper")
    indexing: "Indexing" = _part("headrace.ops.search.indexing", "Indexing")
    orphans: "Orphans" = _part("headrace.ops.shared.jobs", "Orphans")
    shard_deliveries: "ShardDeliveries" = _part(
        "headrace.ops.delivery.shard_deliveries", "ShardDeliveries"
    )
    push: "PushDispatch" = _part("headrace.ops.delivery.push", "PushDispatch")
    push_targets: "PushTargets" = _part("headrace.ops.shared.push_status", "PushTargets")

    # Schedules.
    schedules: "Schedules" = _part("headrace.ops.scheduling.schedules", "Schedules")
    ticking: "Ticking" = _part("headrace.ops.scheduling.ticking", "Ticking")
    tick_tasks: "TickTasks" = _part("headrace.ops.scheduling.tick_tasks", "TickTasks")

    # Operators.
    search: "Search" = _part("headrace.ops.search.search", "Search")
    bulk: "BulkOperations" = _part("headrace.ops.operators.bulk", "BulkOperations")
    actions: "ActionOperations" = _part("headrace.ops.operators.actions", "ActionOperations")
    action_work: "ActionWork" = _part("headrace.ops.operators.action_work", "ActionWork")
    keys: "KeyOperations" = _part("headrace.ops.operators.keys", "KeyOperations")
    sessions: "Sessions" = _part("headrace.ops.operators.sessions", "Sessions")
    workers: "WorkerOperations" = _part("headrace.ops.operators.workers", "WorkerOperations")

    # History.
    alerts: "Alerts" = _part("headrace.ops.scheduling.alerts", "Alerts")
    batch_recounting: "BatchRecounting" = _part("headrace.history.recounting", "BatchRecounting")
    counters: "Counters" = _part("headrace.history.counters", "Counters")
    end_webhooks: "EndWebhooks" = _part("headrace.ops.delivery.end_webhooks", "EndWebhooks")
    errors: "ErrorOperations" = _part("headrace.history.errors", "ErrorOperations")
    flows: "Flows" = _part("headrace.history.flows", "Flows")
    listening: "Listening" = _part("headrace.history.listening", "Listening")
    matching: "Matching" = _part("headrace.ops.search.indexing", "Matching")
    proofs: "Proofs" = _part("headrace.history.proof", "Proofs")
    recording: "Recording" = _part("headrace.history.recorder", "Recording")
    recounting: "Recounting" = _part("headrace.history.recounting", "Recounting")
    stats: "StatsOperations" = _part("headrace.history.stats", "StatsOperations")

    # Shared by the others.
    audit: "Audit" = _part("headrace.ops.shared.audit", "Audit")
    cursors: "Cursors" = _part("headrace.ops.shared.paging", "Cursors")
    derived_ids: "DerivedIds" = _part("headrace.ops.shared.stack_secret", "DerivedIds")
    group_limits: "GroupLimits" = _part("headrace.ops.shared.group_limits", "GroupLimits")
    jobs: "Jobs" = _part("headrace.ops.shared.jobs", "Jobs")
    lines: "Lines" = _part("headrace.ops.shared.lines", "Lines")
    removals: "Removals" = _part("headrace.ops.shared.jobs", "Removals")
    repeats: "Repeats" = _part("headrace.ops.shared.repeats", "Repeats")
    signing: "Signing" = _part("headrace.ops.shared.stack_secret", "Signing")
    slots: "Slots" = _part("headrace.ops.shared.slots", "Slots")
    texts: "OffloadedTexts" = _part("headrace.ops.tasks.uploads", "OffloadedTexts")
    tokens: "Tokens" = _part("headrace.ops.shared.limiting", "Tokens")
    snoozes: "Snoozes" = _part("headrace.ops.operators.snoozes", "Snoozes")
    undos: "Undos" = _part("headrace.ops.operators.undo", "Undos")
    versions: "Versions" = _part("headrace.ops.shared.versions", "Versions")

    def work_on_actions(self) -> None:
        """Invoke the function that works on actions; if that fails, its timer does it."""
        if self.settings.reaper is None:
            return
        from headrace.store.services import invoke  # noqa: PLC0415  botocore's, and rarely

        with suppress(Unavailable):
            invoke(self.settings.reaper, {WORK_ON_ACTIONS: True})
