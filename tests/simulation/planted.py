"""Faults to plant in the product, to show that the tests find them.

Each fault is one small mistake that somebody could make.  It is planted by patching the product for
the length of a test, often a private part of it: so all of them are in this one file.  *finds* says
which promise the fault breaks.
"""

# ruff: noqa: SLF001  a planted fault is about the inside

import pkgutil
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from datetime import timedelta
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import pytest

from headrace.client.worker.service import WorkerService
from headrace.domain import plan, rate, settle, undo
from headrace.domain.alerts import AlertEvent
from headrace.domain.batch import TaskBatch
from headrace.domain.change import Change, In
from headrace.domain.errors import Unavailable
from headrace.domain.fairness import STEP, GroupSettings, TurnTaking, instant_of_turn
from headrace.domain.ids import new_task_id
from headrace.domain.instants import micros_of
from headrace.domain.lifecycle import Action, rule
from headrace.domain.slots import Reservation, ReservationStanding, Stay
from headrace.domain.strict import NOTES, PlaceProgress, Spot
from headrace.domain.task import RETURN_LANE, TURN_LANE, State, Task
from headrace.history import recorder
from headrace.history.counter_buffer import Buffer
from headrace.history.counters import Counters
from headrace.history.ends import EndWebhooks
from headrace.history.matching import Matching
from headrace.ops.delivery import orphans
from headrace.ops.delivery.dequeue import _EarlyLook
from headrace.ops.delivery.idempotency import DeliveryBatch, Overtaken
from headrace.ops.delivery.leasing import QueueLook
from headrace.ops.delivery.orphans import Orphans
from headrace.ops.delivery.push import PushRun
from headrace.ops.operators.action_work import ActionWork
from headrace.ops.shared import strict_notes
from headrace.ops.shared.group_limits import GroupLimits
from headrace.ops.shared.seats import Seat
from headrace.ops.shared.slots import Slots
from headrace.ops.shared.strict_order import StrictOrder
from headrace.ops.tasks import unique_ids
from headrace.ops.tasks.batches import BatchOperations
from headrace.ops.tasks.uploads import Uploads
from headrace.ops.tasks.wait import Waiting
from headrace.store.base import Done, EntryPage, Record
from headrace.store.offload import Offloading
from headrace.store.records import keys as key_records
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite import tasks as sqlite_tasks
from headrace.store.sqlite.commits import Commit
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.ends import TaskEnds

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


STRICT: Final = ("strict", "strict halt")
FAIR: Final = ("fair", "fair limited")
GROUPS: Final = (*STRICT, "fair limited")


@dataclass(frozen=True)
class Fault:
    """A mistake that can be planted.

    *kinds* are the queues of which the simulation needs one to show it.  *test* is the test that
    finds it, of those that neither the simulation nor a short story finds.  One that is *blind* was
    chosen without knowing what the simulation does.
    """

    name: str
    plant: Plant
    finds: str
    kinds: tuple[str, ...] = ()
    test: str = ""
    blind: bool = False


FAULTS: Final[list[Fault]] = []


def fault(name: str, finds: str, **more: Any) -> Callable[[Plant], Plant]:
    """Return what puts a function that plants a fault into ``FAULTS``."""

    def keep(plant: Plant) -> Plant:
        FAULTS.append(Fault(name, plant, finds, **more))
        return plant

    return keep


def setting(target: Any, **values: Any) -> Plant:
    """Return what sets attributes of *target*."""

    def plant(patch: Patch) -> None:
        for name, value in values.items():
            patch.setattr(target, name, value)

    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant the fault *name* for the length of a block."""
    (found,) = (one for one in FAULTS if one.name == name)
    with pytest.MonkeyPatch.context() as patch:
        found.plant(patch)
        yield


def rewrite_changes(patch: Patch, rewrite: Callable[[Any, Change], Change]) -> None:
    """Let the store write what *rewrite* makes of each change."""
    commit = SqliteStore.commit

    def rewritten(self: Any, changes: Sequence[Change], **how: Any) -> Any:
        return commit(self, [rewrite(self, change) for change in changes], **how)

    patch.setattr(SqliteStore, "commit", rewritten)


def replace_everywhere(patch: Patch, function: Any, by: Any) -> None:
    """Replace a function in every module of the service that imports it."""
    for name in ("headrace.ops", "headrace.history"):
        for found in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
            import_module(found.name)
    own = function.__name__
    for name, module in list(sys.modules.items()):
        if name.startswith("headrace.") and vars(module).get(own) is function:
            patch.setattr(module, own, by)


def stored(store: Any, task_id: str) -> Task | None:
    """Return a task as *store* has it, deleted or not."""
    found: dict[str, Task] = {**store.spent([task_id]), **store.read([task_id])}
    return found.get(task_id)


# -- leases and reports ----------------------------------------------------------------------------


fault("a report does not check its lease", "two valid leases")(
    setting(settle, _held=lambda _, held: (In(held.queue, State.INFLIGHT),))
)


@fault("a delivery does not check that the task still waits", "two valid leases")
def _(patch: Patch) -> None:
    def careless(store: Any, change: Change) -> Change:
        del store
        return replace(change, when=()) if change.rule.action is Action.DEQUEUE else change

    rewrite_changes(patch, careless)


@fault(
    "an enqueue that is repeated makes a task that was done again",
    "each task done once",
    test="contract/test_spent",
)
def _(patch: Patch) -> None:
    rewrite_changes(
        patch,
        lambda _, change: (
            replace(
                change,
                put={name: value for name, value in change.put.items() if name != "spent"},
            )
            if change.gone
            else change
        ),
    )


fault("a dequeue notes nothing for its repeat", "a repeat has the same tasks")(
    setting(
        DeliveryBatch, commit=lambda self, changes, **_: self.store.commit(changes, partly=True)
    )
)


@fault("a dequeue notes its tasks after the leases", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    commit = DeliveryBatch.commit

    def later(self: DeliveryBatch, changes: Any, *, now: Any) -> Any:
        outcomes = self.store.commit(changes, partly=True)
        commit(self, changes[:1], now=now)
        return outcomes

    patch.setattr(DeliveryBatch, "commit", later)


@fault("a dequeue overwrites the note of another try", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    commit = DeliveryBatch.commit

    def overwriting(self: DeliveryBatch, changes: Any, *, now: Any) -> Any:
        there = self.store.record(self._record(self._with(changes, now)).kind, "first")
        self.version = there.version if there is not None else None
        return commit(self, changes, now=now)

    patch.setattr(DeliveryBatch, "commit", overwriting)


@fault("a dequeue leases though its note was refused", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    commit = DeliveryBatch.commit

    def stubborn(self: DeliveryBatch, changes: Any, *, now: Any) -> Any:
        try:
            return commit(self, changes, now=now)
        except Overtaken:
            return self.store.commit(changes, partly=True)

    patch.setattr(DeliveryBatch, "commit", stubborn)


fault("a repeated dequeue does not wait for the first try", "a repeat has the same tasks")(
    setting(DeliveryBatch, _write=lambda *_: True)
)


@fault("a repeated dequeue does not look at the first try", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    patch.setattr(DeliveryBatch, "leased_before", lambda *_: None)
    patch.setattr(
        DeliveryBatch, "commit", lambda self, changes, **_: self.store.commit(changes, partly=True)
    )


@fault("a repeated dequeue leases more tasks", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    leased_before = DeliveryBatch.leased_before

    def greedy(self: DeliveryBatch, group: Any, queues: Any) -> Any:
        held = leased_before(self, group, queues)
        if held is not None and len(held) < 3 and group is None:
            record = self.store.record(self._record(self._with([], self.now())).kind, "first")
            self.version = record.version if record is not None else None
            return None
        return held

    patch.setattr(DeliveryBatch, "leased_before", greedy)


fault(
    "a repeated dequeue without tasks does not stop the first try", "a repeat has the same tasks"
)(setting(DeliveryBatch, note_nothing=lambda *_, **__: True))


@fault("a dequeue does not note a later look at the same tasks", "a repeat has the same tasks")
def _(patch: Patch) -> None:
    with_changes = DeliveryBatch._with

    def once(self: DeliveryBatch, changes: Any, now: Any) -> Any:
        noted = with_changes(self, changes, now)
        return noted if self.noted is None else replace(noted, latest=self.noted.latest)

    patch.setattr(DeliveryBatch, "_with", once)


fault("a lease for a waiting worker is not undone with its transaction", "no task lost")(
    setting(_EarlyLook, undo=lambda _: None)
)
fault("a waiting worker is answered before the commit", "no task lost")(
    setting(Database, when_over=lambda _, tell: tell(stands=True))
)
fault("a waiting worker does not notice that its transaction is over", "no task lost")(
    setting(Database, _check_under_way=lambda *_: None)
)
fault("changes judged ahead are not judged again in their transaction", "two valid leases")(
    setting(Commit, stands=lambda *_: True)
)


# -- cancel ----------------------------------------------------------------------------------------


@fault("a cancel leaves the lease in force", "a cancelled task stays cancelled")
def _(patch: Patch) -> None:
    commit = SqliteStore.commit

    def only_said(self: Any, changes: Sequence[Change], **how: Any) -> Any:
        return [
            Done(there)
            if change.rule.action is Action.CANCEL
            and change.rule.source is State.INFLIGHT
            and (there := stored(self, change.task_id)) is not None
            else commit(self, [change], **how)[0]
            for change in changes
        ] or commit(self, changes, **how)

    patch.setattr(SqliteStore, "commit", only_said)


@fault("a late report on a cancelled task takes effect", "a cancelled task stays cancelled")
def _(patch: Patch) -> None:
    def late(store: Any, change: Change) -> Change:
        if change.rule.action not in (Action.SUCCEED, Action.FAIL, Action.RELEASE):
            return change
        task = stored(store, change.task_id)
        return replace(change, when=()) if task is not None and task.cancelled else change

    rewrite_changes(patch, late)


@fault(
    "a worker does not read which tasks were cancelled",
    "a worker hears of a cancel",
    test="unit/worker/test_group_lease",
)
def _(patch: Patch) -> None:
    extend = WorkerService.extend_lease

    def deaf(self: WorkerService, id: str, *, within: float) -> Any:
        return msgspec.structs.replace(extend(self, id, within=within), cancelled=[])

    patch.setattr(WorkerService, "extend_lease", deaf)


@fault(
    "a worker takes listed tasks for cancelled, though restarted since",
    "only cancelled tasks are interrupted",
    test="unit/worker/test_group_lease",
)
def _(patch: Patch) -> None:
    extend, report = WorkerService.extend_lease, WorkerService.report
    listed: set[str] = set()

    def noting(self: WorkerService, id: str, *, within: float) -> Any:
        lease = extend(self, id, within=within)
        listed.update(lease.cancelled)
        return lease

    def believing(self: WorkerService, queue: str, reports: Any, *, within: float) -> Any:
        results = report(self, queue, reports, within=within)
        return [
            msgspec.structs.replace(
                result, outcome="NOT_INFLIGHT", lease=None, dead_reason="cancelled"
            )
            if one.status == "INFLIGHT" and one.task_id in listed
            else result
            for one, result in zip(reports, results, strict=True)
        ]

    patch.setattr(WorkerService, "extend_lease", noting)
    patch.setattr(WorkerService, "report", believing)


@fault(
    "a worker takes a cancel for a lost lease",
    "a worker hears of a cancel",
    test="unit/worker/test_cancelling",
)
def _(patch: Patch) -> None:
    report = WorkerService.report

    def without_reason(self: WorkerService, queue: str, reports: Any, *, within: float) -> Any:
        results = report(self, queue, reports, within=within)
        return [msgspec.structs.replace(result, dead_reason=None) for result in results]

    patch.setattr(WorkerService, "report", without_reason)


# -- waiting for the end of a task -----------------------------------------------------------------


def pausing(
    patch: Patch, make: Callable[[Waiting, str], Iterator[Callable[[float], None]]]
) -> None:
    patch.setattr(Waiting, "_pausing", contextmanager(make))


@fault("a wait forgets a wake-up between its look and its pause", "a wait ends at the end")
def _(patch: Patch) -> None:
    def forgetful(self: Waiting, task_id: str) -> Iterator[Callable[[float], None]]:
        woken = self.new_event()
        ends = self.ends
        if ends is None:
            yield lambda most: self.sleep(min(most, self.poll_after_seconds))
            return

        def pause(most: float) -> None:
            woken.clear()
            woken.wait(min(most, 1))

        with ends.told(task_id, woken.set):
            yield pause

    pausing(patch, forgetful)


@fault("a wait subscribes only after its look", "a wait ends at the end")
def _(patch: Patch) -> None:
    def late(self: Waiting, task_id: str) -> Iterator[Callable[[float], None]]:
        woken = self.new_event()

        def pause(most: float) -> None:
            if self.ends is None:
                return self.sleep(min(most, 1))
            with self.ends.told(task_id, woken.set):
                woken.wait(min(most, 1))
            return None

        yield pause

    pausing(patch, late)


@fault("a wait takes a retry for an end", "a wait ends at the end", test="contract/test_wait")
def _(patch: Patch) -> None:
    look = Waiting._look

    def hasty(self: Waiting, task_id: str) -> Task:
        task = look(self, task_id)
        dead = replace(task, place=replace(task.place, state=State.DEAD))
        return dead if task.errors else task

    patch.setattr(Waiting, "_look", hasty)


@fault(
    "a wait believes a read that may be stale", "a wait ends at the end", test="contract/test_wait"
)
def _(patch: Patch) -> None:
    look = Waiting._look

    def once(self: Waiting, task_id: str) -> Task:
        found = self.store.read([task_id], consistent=False)
        return look(self, task_id) if found else look(self, f"{task_id}-missing")

    patch.setattr(Waiting, "_look", once)


@fault("a wait pauses longer and longer", "a wait ends at the end")
def _(patch: Patch) -> None:
    def growing(self: Waiting, _: str) -> Iterator[Callable[[float], None]]:
        pauses = (self.poll_after_seconds * 2**number for number in range(99))
        yield lambda most: self.sleep(min(most, next(pauses)))

    pausing(patch, growing)


@fault("a wait pauses beyond its timeout", "a wait ends in time")
def _(patch: Patch) -> None:
    def long(self: Waiting, _: str) -> Iterator[Callable[[float], None]]:
        yield lambda _: self.sleep(max(1.0, self.poll_after_seconds))

    pausing(patch, long)


@fault("a wait that ends forgets the others for its task", "a wait ends at the end")
def _(patch: Patch) -> None:
    told = TaskEnds.told

    @contextmanager
    def careless(self: TaskEnds, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        try:
            with told(self, task_id, wake):
                yield
        finally:
            self._wakes.pop(task_id, None)

    patch.setattr(TaskEnds, "told", careless)


@fault("a wait is never forgotten", "memory stays bounded")
def _(patch: Patch) -> None:
    @contextmanager
    def keeping(self: TaskEnds, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        self._wakes.setdefault(task_id, []).append(wake)
        yield

    patch.setattr(TaskEnds, "told", keeping)


@fault(
    "a wait does not hear that its task is gone",
    "a wait ends at the end",
    test="unit/store/sqlite/test_ends",
)
def _(patch: Patch) -> None:
    ended = TaskEnds.ended

    def kept(self: TaskEnds, task_ids: Any) -> None:
        with self._db.reading() as db:
            there = {row[0] for row in db.execute("SELECT id FROM tasks WHERE state IS NOT NULL")}
        ended(self, [task_id for task_id in task_ids if task_id in there])

    patch.setattr(TaskEnds, "ended", kept)


# -- undo ------------------------------------------------------------------------------------------


def rewrite_undos(patch: Patch, rewrite: Callable[[Change], Change]) -> None:
    rewrite_changes(
        patch,
        lambda _, change: rewrite(change) if change.rule.action is Action.UNDELETE else change,
    )


fault(
    "an undo takes a dedupe key that another task holds", "undo exact", test="contract/test_undo"
)(lambda patch: rewrite_undos(patch, lambda change: replace(change, also=())))


@fault("an undo changes the due time", "undo exact")
def _(patch: Patch) -> None:
    def later(change: Change) -> Change:
        if "due_at" not in change.put:
            return change
        due = change.put["due_at"] + timedelta(seconds=1)
        return replace(change, put={**change.put, "due_at": due, "scheduled_at": due})

    rewrite_undos(patch, later)


@fault(
    "an undo keeps a finished task only as long as the undo",
    "undo exact",
    test="contract/test_undo",
)
def _(patch: Patch) -> None:
    def shorter(change: Change) -> Change:
        put = {name: value for name, value in change.put.items() if name != "retained_until"}
        clear = tuple(name for name in change.clear if name != "retained_until")
        return replace(change, put=put, clear=clear)

    rewrite_undos(patch, shorter)


@fault("a deletion leaves the task where the index shows it", "a deleted task is hidden")
def _(patch: Patch) -> None:
    def hiding(_: Any, change: Change) -> Change:
        if change.rule.target is not State.DELETED:
            return change
        put = {name: value for name, value in change.put.items() if name == "deleted_by"}
        return replace(change, put=put, clear=())

    rewrite_changes(patch, hiding)


@fault("a deleted task is shown among the waiting", "a deleted task is hidden")
def _(patch: Patch) -> None:
    found = SqliteStore._found

    def showing(self: Any, *given: Any, **how: Any) -> list[Task]:
        return [
            replace(task, place=replace(task.place, state=State.ENQUEUED))
            if task.state is State.DELETED
            else task
            for task in found(self, *given, **how)
        ]

    patch.setattr(SqliteStore, "_found", showing)


@fault("an undo overwrites a new task of the same id", "undo exact")
def _(patch: Patch) -> None:
    commit, spent = SqliteStore.commit, SqliteStore.spent
    deleted: WeakKeyDictionary[Any, dict[str, Task]] = WeakKeyDictionary()

    def remembering(self: Any, changes: Sequence[Change], **how: Any) -> Any:
        outcomes = commit(self, changes, **how)
        for outcome in outcomes:
            if isinstance(outcome, Done) and outcome.task.state is State.DELETED:
                deleted.setdefault(self, {})[outcome.task.id] = outcome.task
        return outcomes

    def restoring(self: Any, task_ids: Any) -> dict[str, Task]:
        wanted = list(task_ids)
        old, names = deleted.get(self, {}), [one.name for one in dataclass_fields(Task)]
        for task in self.read([name for name in wanted if name in old]).values():
            fields = {name: getattr(old[task.id], name) for name in names if name != "id"}
            row = rule(Action.UNDELETE, State.DELETED, State.ENQUEUED)
            commit(self, [Change(row, task.id, put=fields)])
        return spent(self, wanted)

    patch.setattr(SqliteStore, "commit", remembering)
    patch.setattr(SqliteStore, "spent", restoring)


# -- priorities ------------------------------------------------------------------------------------


@fault(
    "the boost of a priority is in the due time", "no task before its due time", kinds=("priority",)
)
def _(patch: Patch) -> None:
    def boosted(_: Any, change: Change) -> Change:
        new = change.insert
        if new is None or new.place.lane != 1 or new.scheduled_at <= new.created_at:
            return change
        return replace(
            change, insert=replace(new, scheduled_at=new.scheduled_at - timedelta(seconds=60))
        )

    rewrite_changes(patch, boosted)


@fault("a retry loses its priority", "order of priorities", test="contract/test_priority")
def _(patch: Patch) -> None:
    def normal(_: Any, change: Change) -> Change:
        place = change.put.get("place")
        retries = change.rule.action in (Action.FAIL, Action.RECLAIM)
        if not retries or place is None or place.state is not State.ENQUEUED:
            return change
        lane = place.lane if place.lane in (TURN_LANE, RETURN_LANE) else 0
        return replace(change, put={**change.put, "place": replace(place, lane=lane)})

    rewrite_changes(patch, normal)


def rewrite_queues(patch: Patch, rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    record = SqliteStore.record

    def rewritten(self: Any, kind: str, name: str) -> Record | None:
        found = record(self, kind, name)
        if found is None or kind != "queue":
            return found
        return replace(found, body=rewrite({**found.body}))

    patch.setattr(SqliteStore, "record", rewritten)


@fault(
    "lanes are forgotten when priorities are switched off", "no task starved", kinds=("priority",)
)
def _(patch: Patch) -> None:
    def forgetful(body: dict[str, Any]) -> dict[str, Any]:
        used = [0, 1, 2] if body["settings"].get("priority") else [0]
        return body | {"lanes_in_use": used, "lanes_ever": used}

    rewrite_queues(patch, forgetful)


@fault(
    "tasks of high priority go first without a bound",
    "order of priorities",
    test="contract/test_priority",
)
def _(patch: Patch) -> None:
    def unbounded(body: dict[str, Any]) -> dict[str, Any]:
        if body["settings"].get("priority"):
            priority = {"aging_in_seconds": 86_400}
            body["settings"] = {**body["settings"], "priority": priority}
        return body

    rewrite_queues(patch, unbounded)


# -- batches ---------------------------------------------------------------------------------------


fault("a batch ends when no member is live", "a batch never ends early")(
    setting(TaskBatch, complete=property(lambda self: self.direct == self.total and self.live == 0))
)


@fault("a batch ends when as many have ended as were made", "a batch never ends early")
def _(patch: Patch) -> None:
    def made(self: TaskBatch) -> bool:
        return self.total is not None and self.created >= self.total and self.live == 0

    patch.setattr(TaskBatch, "complete", property(made))


@fault("a batch counts children instead of naming them", "a batch never ends early")
def _(patch: Patch) -> None:
    replace_everywhere(patch, import_module("headrace.domain.batch").hash_of, lambda _: 1)
    patch.setattr("headrace.domain.batch.hash_of", lambda _: 1)


@fault("a batch counts again what the recorder repeats", "batch numbers exact")
def _(patch: Patch) -> None:
    counted = TaskBatch.counted
    patch.setattr(
        TaskBatch,
        "counted",
        lambda self, delta, **how: counted(replace(self, posted={}), delta, **how),
    )


@fault("a batch makes its callbacks again under other ids", "a batch calls back once")
def _(patch: Patch) -> None:
    find, chance = BatchOperations._find, random.Random(1)

    def forgetful(self: BatchOperations, batch_id: str) -> TaskBatch | None:
        found = find(self, batch_id)
        if found is None:
            return None
        at = found.created_at.replace(microsecond=chance.randrange(1_000_000))
        return replace(found, fired={}, created_at=at)

    patch.setattr(BatchOperations, "_find", forgetful)


fault(
    "the first death of a batch is not told",
    "a batch calls back at its first death",
    test="contract/test_batches",
)(setting(BatchOperations, failure_known=lambda *_: True))


@fault(
    "members of an earlier batch of the same id count",
    "batch numbers exact",
    test="contract/test_batches",
)
def _(patch: Patch) -> None:
    count = BatchOperations.count

    def by_id(self: BatchOperations, key: str, *given: Any, **how: Any) -> None:
        found = self._find(key.partition(".")[0])
        count(self, key if found is None else found.key, *given, **how)

    patch.setattr(BatchOperations, "count", by_id)


@fault("the last end of a batch waits for its minute", "a batch ends soon")
def _(patch: Patch) -> None:
    post = Counters.post

    def patient(self: Counters, buffer: Buffer) -> None:
        for delta in buffer.batches.values():
            delta.due = False
        post(self, buffer)

    patch.setattr(Counters, "post", patient)


@fault(
    "a buffer is added to that still owes a batch",
    "batch numbers exact",
    test="contract/test_batches",
)
def _(patch: Patch) -> None:
    post = Counters.post

    def hoarding(self: Counters, buffer: Buffer) -> None:
        held = dict(buffer.batches)
        post(self, buffer)
        buffer.batches = held

    patch.setattr(Counters, "post", hoarding)


# -- limits of tasks in flight ---------------------------------------------------------------------


@fault("freeing a slot twice frees another slot", "limits never exceeded")
def _(patch: Patch) -> None:
    free = SqliteStore.free

    def by_number(self: Any, queue: str, pool: int, texts: Any) -> frozenset[str]:
        held = sorted(self.pools(queue, pool, pool).get(pool, ()))
        there = [text for text in held if text in texts]
        return free(self, queue, pool, [*there, *held][: len(texts)])

    patch.setattr(SqliteStore, "free", by_number)


@fault("a lost race frees its slot without a look", "limits never exceeded")
def _(patch: Patch) -> None:
    def careless(self: Slots, queue: Any, reserved: Any, outcomes: Any) -> None:
        for reservation, outcome in zip(reserved, outcomes, strict=True):
            if not isinstance(outcome, Done):
                self._free(queue.name, reservation.pool, [reservation.text])

    patch.setattr(Slots, "refused", careless)


@fault("a slot is free while its task waits", "limits never exceeded")
def _(patch: Patch) -> None:
    standing = Reservation.standing

    def eager(self: Reservation, task: Any, queue: str) -> ReservationStanding:
        found = standing(self, task, queue)
        return ReservationStanding.OVER if found is ReservationStanding.WAITING else found

    patch.setattr(Reservation, "standing", eager)


@fault("a released task keeps its due time", "limits never exceeded", test="contract/test_limits")
def _(patch: Patch) -> None:
    def kept(store: Any, change: Change) -> Change:
        if change.rule.action is not Action.RELEASE or "due_at" not in change.put:
            return change
        task = stored(store, change.task_id)
        if task is None or change.put["scheduled_at"] != change.put["due_at"]:
            return change
        due = task.due_at
        return replace(change, put={**change.put, "due_at": due, "scheduled_at": due})

    rewrite_changes(patch, kept)


fault("a rate gives twice its tokens at once", "rates never exceeded", kinds=("rate",))(
    setting(rate.Rate, span=property(lambda self: 2 * self.unit * self.max_tokens))
)


# -- fair groups -----------------------------------------------------------------------------------


def turn_ends(patch: Patch, end: Callable[[TurnTaking, int | None], int]) -> None:
    right = TurnTaking.end

    def wrong(self: TurnTaking, line: int | None) -> int:
        return end(self, line) if type(self) is TurnTaking else right(self, line)

    patch.setattr(TurnTaking, "end", wrong)


fault("an idle group saves its turns", "bound of fair groups")(
    lambda patch: turn_ends(patch, lambda take, line: (line or 0) + take.length)
)
fault(
    "a group begins again at what is delivered", "order in a group", test="contract/test_fairness"
)(lambda patch: turn_ends(patch, lambda take, _: take.delivered + take.length))


@fault("turns of groups are due times", "bound of fair groups", test="contract/test_fairness")
def _(patch: Patch) -> None:
    def by_due(_: Any, change: Change) -> Change:
        new = change.insert
        if new is None or new.turn is None or new.after is not None:
            return change
        turn = instant_of_turn(micros_of(new.due_at) % (30 * 86_400_000_000))
        return replace(change, insert=replace(new, scheduled_at=turn, turn=turn))

    rewrite_changes(patch, by_due)


@fault("tasks with turns go before all others", "no task starved", test="contract/test_fairness")
def _(patch: Patch) -> None:
    entries = SqliteStore.entries

    def greedy(self: Any, place: Any, **how: Any) -> EntryPage:
        behind = place.lane in (0, RETURN_LANE) and place.state is State.ENQUEUED
        if behind and entries(self, replace(place, lane=TURN_LANE), limit=1).entries:
            return EntryPage((), None)
        return entries(self, place, **how)

    patch.setattr(SqliteStore, "entries", greedy)


fault("weights of groups count for nothing", "bound of fair groups", test="contract/test_fairness")(
    setting(GroupSettings, step=lambda *_: STEP)
)
fault("delivered turns are not noted", "bound of fair groups")(
    setting(SqliteStore, note_delivered=lambda *_, **__: None)
)


@fault("a retry goes back to its turn", "bound of fair groups", test="contract/test_fairness")
def _(patch: Patch) -> None:
    def back(store: Any, change: Change) -> Change:
        if change.rule.action not in (Action.FAIL, Action.RELEASE) or "due_at" not in change.put:
            return change
        task = stored(store, change.task_id)
        if task is None or task.turn is None or task.after is not None:
            return change
        place = replace(change.put["place"], lane=TURN_LANE)
        put = {**change.put, "place": place, "scheduled_at": task.turn}
        return replace(change, put=put, clear=tuple(c for c in change.clear if c != "turn"))

    rewrite_changes(patch, back)


# -- limits of groups ------------------------------------------------------------------------------


@fault("a slot of a group is free while its task waits", "limits of groups never exceeded")
def _(patch: Patch) -> None:
    standing = Stay.standing

    def eager(self: Stay, task: Any, queue: str) -> ReservationStanding:
        found = standing(self, task, queue)
        return ReservationStanding.OVER if found is ReservationStanding.WAITING else found

    patch.setattr(Stay, "standing", eager)


@fault(
    "a slot of a group is written whatever it names",
    "limits of groups never exceeded",
    test="contract/test_group_limits",
)
def _(patch: Patch) -> None:
    take_slot = SqliteStore.take_slot

    def blind(self: Any, queue: str, take: Any) -> bool:
        line = self.lines(queue, [take.name]).get(take.name)
        there = None if line is None else line.slots.get(take.number)
        return take_slot(self, queue, replace(take, expects=there))

    patch.setattr(SqliteStore, "take_slot", blind)


fault("a delivery in a group does not check the due time", "limits of groups never exceeded")(
    setting(plan, under_stay=lambda delivery, _: delivery)
)


class StaleReads:
    """A store whose reads may all be stale."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, task_ids: Any, *, payload: bool = True, consistent: bool = True) -> Any:
        del consistent
        return self._store.read(task_ids, payload=payload, consistent=False)


@fault("the holder of a slot of a group is read stale", "limits of groups never exceeded")
def _(patch: Patch) -> None:
    holders = GroupLimits._holders

    def stale(self: GroupLimits, *given: Any) -> Any:
        store, self.store = self.store, StaleReads(self.store)
        try:
            return holders(self, *given)
        finally:
            self.store = store

    patch.setattr(GroupLimits, "_holders", stale)


fault("an undo keeps the due time under a limit", "limits of groups never exceeded")(
    setting(undo, MICROSECOND=timedelta(0))
)
fault("a slot of a group that a dead process took is not completed", "no task starved")(
    setting(GroupLimits, _left=lambda *_: [])
)


# -- strict groups ---------------------------------------------------------------------------------


def spot_progress(
    patch: Patch, wrong: Callable[[PlaceProgress, Spot, Task | None], PlaceProgress]
) -> None:
    progress = Spot.progress

    def changed(self: Spot, task: Task | None, *given: Any, **how: Any) -> PlaceProgress:
        return wrong(progress(self, task, *given, **how), self, task)

    patch.setattr(Spot, "progress", changed)


fault(
    "a task of a strict group does not look at the one before",
    "order of strict groups",
    test="contract/test_strict_order",
)(setting(StrictOrder, _follows=lambda *_: True))
fault(
    "a missing task of a strict group is believed gone at once",
    "order of strict groups",
    test="contract/test_strict_order",
)(setting(StrictOrder, _believed=lambda *_: True))


@fault("a retry counts as the end of its place", "order of strict groups", kinds=STRICT)
def _(patch: Patch) -> None:
    def eager(found: PlaceProgress, _: Spot, task: Task | None) -> PlaceProgress:
        retries = found is PlaceProgress.WAITING and task is not None and task.errors
        return PlaceProgress.DONE if retries else found

    spot_progress(patch, eager)


@fault("a task that ended undelivered counts as delivered", "order of strict groups")
def _(patch: Patch) -> None:
    def vouching(found: PlaceProgress, spot: Spot, task: Task | None) -> PlaceProgress:
        ended = task is not None and task.state is State.DEAD and Spot.of(task) == spot
        return PlaceProgress.DONE if found is PlaceProgress.UNKNOWN and ended else found

    spot_progress(patch, vouching)


fault(
    "a dead task does not halt its group",
    "order of strict groups",
    test="contract/test_strict_order",
)(
    lambda patch: spot_progress(
        patch,
        lambda found, *_: PlaceProgress.DONE if found is PlaceProgress.HALTING else found,
    )
)


@fault(
    "a place in a strict group has no number",
    "order of strict groups",
    test="contract/test_strict_order",
)
def _(patch: Patch) -> None:
    progress = Spot.progress

    def by_task(self: Spot, task: Task | None, *given: Any, **how: Any) -> PlaceProgress:
        spot = self if task is None else Spot.of(task)
        return progress(spot, task, *given, **how)

    patch.setattr(Spot, "progress", by_task)


@fault(
    "a slot of a strict group that a dead process took is not completed",
    "no task starved",
    test="contract/test_strict_order",
)
def _(patch: Patch) -> None:
    find_next = StrictOrder._next

    def abandoning(self: StrictOrder, *given: Any) -> Any:
        found = find_next(self, *given)
        return None if found.__class__.__name__ == "Entry" else found

    patch.setattr(StrictOrder, "_next", abandoning)


@fault("a producer inserts however long ago it took its place", "order of strict groups")
def _(patch: Patch) -> None:
    for module in ("enqueue", "spawn"):
        name = f"headrace.ops.tasks.{module}.PLACE_GOOD_FOR"
        patch.setattr(name, timedelta(days=10_000))


fault(
    "a deletion from a strict group is not noted",
    "no task starved",
    test="contract/test_strict_order",
)(lambda patch: replace_everywhere(patch, strict_notes.note_left, lambda *_: None))
fault(
    "an unused place in a strict group is not noted",
    "no task starved",
    test="contract/test_strict_order",
)(lambda patch: replace_everywhere(patch, strict_notes.note_unused, lambda *_: None))
fault(
    "an unused place of a move is not noted", "no task starved", test="contract/test_strict_order"
)(lambda patch: replace_everywhere(patch, strict_notes.note_unmade, lambda *_: None))
fault(
    "a task that dies undelivered is not noted",
    "order of strict groups",
    test="contract/test_strict_order",
)(lambda patch: replace_everywhere(patch, strict_notes.note_dying, lambda *_: None))


@fault(
    "no note is written into a strict group",
    "order of strict groups",
    test="contract/test_strict_order",
)
def _(patch: Patch) -> None:
    take_slot = SqliteStore.take_slot
    patch.setattr(
        SqliteStore,
        "take_slot",
        lambda self, queue, take: take.number in NOTES or take_slot(self, queue, take),
    )


@fault("a strict group believes reads that may be stale", "order of strict groups")
def _(patch: Patch) -> None:
    read = StrictOrder._read
    patch.setattr(StrictOrder, "_read", lambda self, ids, **_: read(self, ids, consistent=False))


# -- push ------------------------------------------------------------------------------------------


fault("a seat is taken from its holder", "one dispatcher has a seat", test="contract/test_push")(
    setting(Seat, _of_another=lambda *_: False)
)


@fault(
    "a lost race for a seat is not noticed", "one dispatcher has a seat", test="contract/test_push"
)
def _(patch: Patch) -> None:
    take = Seat.take

    def sure(self: Seat, notes: Any = None) -> bool:
        take(self, notes)
        self._until = self.monotonic() + 60
        return True

    patch.setattr(Seat, "take", sure)


fault("a seat that has ended is used", "one dispatcher has a seat", test="contract/test_push")(
    setting(Seat, held=property(lambda self: self._until > 0))
)
fault(
    "a dispatcher does not count its threads",
    "no more requests than threads",
    kinds=("push",),
)(setting(PushRun, room=property(lambda _: 5)))


@fault("a report that waits makes room for another request", "no more requests than threads")
def _(patch: Patch) -> None:
    def room(self: PushRun) -> int:
        return max(0, self.limit.allowed(self.dispatch.monotonic()) - len(self.inflight))

    patch.setattr(PushRun, "room", property(room))


fault("a dispatcher that ends keeps its tasks", "a dispatcher that ends gives tasks back")(
    setting(PushRun, close=lambda self: self.seat.give_up({}))
)


@fault(
    "a busy target costs an attempt", "a busy target costs no attempt", test="contract/test_push"
)
def _(patch: Patch) -> None:
    report = PushRun._report

    def failing(self: PushRun, task: Task, answer: Any) -> Any:
        return report(self, task, replace(answer, status=500) if answer.busy else answer)

    patch.setattr(PushRun, "_report", failing)


fault("a dispatcher forgets its reports", "each attempt reported once", test="contract/test_push")(
    setting(PushRun, _say=lambda self: self._unsaid.clear())
)
fault(
    "workers get the tasks of a queue with a target",
    "only the dispatcher takes tasks",
    kinds=("push",),
)(setting(QueueLook, _paused=lambda _: False))
fault("tasks leased without an answer are not given back", "no more requests than threads")(
    setting(PushRun, _give_back_unknown=lambda self: setattr(self, "_unsure", False))
)


# -- events at the end of a task, alerts ----------------------------------------------------------


fault(
    "events at the end of a task have random ids",
    "each end told once",
    kinds=("telling",),
)(setting(EndWebhooks, _id=lambda _, at, *__: new_task_id(at)))


class Unmarked:
    """A written task that does not say that it tells of another."""

    tells_of = None

    def __init__(self, view: Any) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


@fault("the end of an event is told too", "events have no events", test="contract/test_ends")
def _(patch: Patch) -> None:
    tell = EndWebhooks.tell

    def of_events(self: EndWebhooks, writes: Any) -> None:
        tell(
            self,
            [
                (write._replace(after=Unmarked(write.after)) if write.after else write, change)
                for write, change in writes
            ],
        )

    patch.setattr(EndWebhooks, "tell", of_events)


@fault(
    "an end is told only after it was counted",
    "each end told once",
    kinds=("telling",),
)
def _(patch: Patch) -> None:
    tell = EndWebhooks.tell
    kept: dict[int, Any] = {}

    def late(self: EndWebhooks, writes: Any) -> None:
        waiting, kept[id(self)] = kept.get(id(self), ()), tuple(writes)
        tell(self, waiting)

    patch.setattr(EndWebhooks, "tell", late)


@fault("the state of alerts is written unseen, with random ids", "each alert told once")
def _(patch: Patch) -> None:
    facts, put_records = AlertEvent.facts, SqliteStore.put_records

    def unseen(self: Any, writes: Any, *, tasks: Any = ()) -> bool:
        if writes[0][0].kind == "alert":
            there = self.record(writes[0][0].kind, writes[0][0].name)
            writes = [(writes[0][0], None if there is None else there.version)]
        return put_records(self, writes, tasks=tasks)

    patch.setattr(AlertEvent, "facts", lambda self, *given: (*facts(self, *given), random.random()))
    patch.setattr(SqliteStore, "put_records", unseen)


@fault("the state of alerts is written before their tasks", "each alert told once")
def _(patch: Patch) -> None:
    put_records = SqliteStore.put_records
    died: list[str] = []

    def apart(self: Any, writes: Any, *, tasks: Any = ()) -> bool:
        if writes[0][0].kind != "alert" or not tasks or died:
            return put_records(self, writes, tasks=tasks)
        put_records(self, writes)
        died.append("before it told")
        raise Unavailable("died before it told")

    patch.setattr(SqliteStore, "put_records", apart)


@fault("alerts of an earlier queue of the same name count", "each alert told once")
def _(patch: Patch) -> None:
    drop, read = SqliteStore.drop_record, SqliteStore.record

    def record(self: Any, kind: str, name: str) -> Record | None:
        found = read(self, kind, name)
        queue = read(self, "queue", name) if kind == "alert" else None
        if found is None or queue is None:
            return found
        return replace(found, body={**found.body, "epoch": queue.body["alerts_since"]})

    patch.setattr(
        SqliteStore,
        "drop_record",
        lambda self, kind, *given, **how: kind != "alert" and drop(self, kind, *given, **how),
    )
    patch.setattr(SqliteStore, "record", record)


# -- large payloads and uploads --------------------------------------------------------------------


@fault(
    "a task is written before its payload",
    "no task without its payload",
    test="contract/test_offload",
)
def _(patch: Patch) -> None:
    put = Offloading._put

    def commit(self: Offloading, changes: Sequence[Change], **how: Any) -> Any:
        objects, later = self._objects, list[Any]()
        self._objects = type("Later", (), {"put": lambda _, contents: later.append(contents)})()
        try:
            planned = put(self, changes)
        finally:
            self._objects = objects
        outcomes = self._store.commit(planned, **how)
        for contents in later:
            objects.put(contents)
        return outcomes

    patch.setattr(Offloading, "commit", commit)


@fault("payloads of a write that failed are dropped at once", "no task without its payload")
def _(patch: Patch) -> None:
    put = Offloading._put

    def commit(self: Offloading, changes: Sequence[Change], **how: Any) -> Any:
        planned = put(self, changes)
        try:
            return self._store.commit(planned, **how)
        except Unavailable:
            written = [one.insert for one in planned if one.insert is not None]
            self._objects.drop([o.name for task in written for o in task.offloaded.values()])
            raise

    patch.setattr(Offloading, "commit", commit)


@fault("a small text leaves the reference to a large one", "one text for each field")
def _(patch: Patch) -> None:
    put = Offloading._put
    patch.setattr(
        Offloading,
        "_put",
        lambda self, changes: [
            replace(one, clear=tuple(name for name in one.clear if not name.endswith("_ref")))
            for one in put(self, changes)
        ],
    )


@fault(
    "names of payloads are used again", "no task without its payload", test="contract/test_offload"
)
def _(patch: Patch) -> None:
    init = Offloading.__init__

    def same(self: Offloading, store: Any, objects: Any, most: int, *_: Any) -> None:
        init(self, store, objects, most, lambda: "same")

    patch.setattr(Offloading, "__init__", same)


@fault("the recorder drops a payload that an undo may bring back", "no task without its payload")
def _(patch: Patch) -> None:
    record = recorder.Recording.record

    def hidden(write: Any) -> Any:
        is_hidden = write.after is not None and write.after.spot is None
        return write._replace(after=None) if is_hidden else write

    patch.setattr(
        recorder.Recording,
        "record",
        lambda self, shard, writes, **how: record(self, shard, [*map(hidden, writes)], **how),
    )


@fault("a payload that an undo may bring back is an orphan", "no task without its payload")
def _(patch: Patch) -> None:
    def blind(self: Orphans, old: Any) -> list[str]:
        names = [one.name for one in old]
        found = self.store.read([name.partition("/")[0] for name in names])
        used = {one.name for task in found.values() for one in task.offloaded.values()}
        return [name for name in names if name not in used]

    patch.setattr(Orphans, "_orphans", blind)


fault("an old payload is an orphan", "no task without its payload", test="contract/test_offload")(
    setting(Orphans, _orphans=lambda _, old: [one.name for one in old])
)
fault("orphans are not removed", "no payload without a task", test="contract/test_offload")(
    setting(Orphans, sweep=lambda _: 0)
)
fault("an upload is an orphan while it may be used", "no task without its payload")(
    setting(orphans, ORPHAN_AGE=timedelta(0))
)
fault(
    "the recorder drops an upload that may be used again",
    "no task without its payload",
    test="contract/test_uploads",
)(setting(recorder, may_come_again=lambda *_: False))
fault(
    "a payload that was never uploaded makes a task",
    "no task without its payload",
    test="contract/test_uploads",
)(setting(Uploads, faults=lambda *_: {}))


@fault(
    "an upload can be used after its hour",
    "no task without its payload",
    test="contract/test_uploads",
)
def _(patch: Patch) -> None:
    faults = Uploads.faults

    def lenient(self: Uploads, new: Any, queue: str) -> dict[str, str]:
        found = faults(self, new, queue)
        over = {name for name, why in found.items() if " is over" in why}
        there = self.objects.sizes(over) if self.objects is not None else {}
        return {name: why for name, why in found.items() if name not in there}

    patch.setattr(Uploads, "faults", lenient)


# -- operators' actions, keys, search, counters ----------------------------------------------------


@fault("an action takes a part over without its earlier times", "each task changed once")
def _(patch: Patch) -> None:
    with_part = ActionWork._with_part

    def forgetful(self: ActionWork, run: Any, found: Any) -> Any:
        begun = with_part(self, run, found)
        assert begun.part is not None
        return replace(begun, part=replace(begun.part, stamps=begun.part.stamps[-1:]))

    patch.setattr(ActionWork, "_with_part", forgetful)


@fault("an action counts a part that another worker took over", "each task counted once")
def _(patch: Patch) -> None:
    saved = ActionWork._saved

    def counting(self: ActionWork, run: Any, found: Any, outcomes: Any, *, more: bool) -> Any:
        there = self.actions.get(run.id)
        if not there.over and there.part != run.part:
            number = sum(one.changed for one in outcomes)
            self.actions.put(replace(there, changed=there.changed + number))
            return None
        return saved(self, run, found, outcomes, more=more)

    patch.setattr(ActionWork, "_saved", counting)


@fault("an action acts before it notes its part", "each task changed once")
def _(patch: Patch) -> None:
    with_part = ActionWork._with_part

    def eager(self: ActionWork, run: Any, found: Any) -> Any:
        begun = with_part(self, run, found)
        self._act(begun, found)
        return begun

    patch.setattr(ActionWork, "_with_part", eager)


@fault("the name of a key is read and then written", "one living key has a name")
def _(patch: Patch) -> None:
    put_records = SqliteStore.put_records

    def unseen(self: Any, writes: Any, *, tasks: Any = ()) -> bool:
        if not any(record.kind == key_records.NAMES for record, _ in writes):
            return put_records(self, writes, tasks=tasks)
        for record, _ in writes:
            self.renew_record(record)
        return True

    patch.setattr(SqliteStore, "put_records", unseen)


@fault("a name is taken from whichever key has it", "one living key has a name")
def _(patch: Patch) -> None:
    put_records = SqliteStore.put_records

    def counting(self: Any, writes: Any, *, tasks: Any = ()) -> bool:
        if len(writes) > 1 and writes[1][0].kind == key_records.NAMES:
            key, (named, version) = writes
            there = self.record(named.kind, named.name)
            seen = there.version if there is not None and version is not None else version
            writes = [key, (named, seen)]
        return put_records(self, writes, tasks=tasks)

    patch.setattr(SqliteStore, "put_records", counting)


@fault(
    "a key is written whatever is there", "a revoked key stays revoked", test="contract/test_keys"
)
def _(patch: Patch) -> None:
    put_record = SqliteStore.put_record

    def blind(self: Any, record: Record, *, replaces: Any, lazy: bool = False) -> bool:
        if record.kind != key_records.KIND:
            return put_record(self, record, replaces=replaces, lazy=lazy)
        self.renew_record(record)
        return True

    patch.setattr(SqliteStore, "put_record", blind)


@fault("a name is given up whichever key has it", "one living key has a name")
def _(patch: Patch) -> None:
    drop = SqliteStore.drop_record
    patch.setattr(SqliteStore, "drop_record", lambda self, kind, name, **_: drop(self, kind, name))


@fault("the index of values forgets a task that waits again", "a search finds every task")
def _(patch: Patch) -> None:
    write = Matching.write

    def stays(one: Any) -> bool:
        sides = (one.before, one.after)
        spots = [side.spot for side in sides if side is not None and side.spot is not None]
        return len(spots) == len(sides) and spots[0][0] == spots[1][0]

    patch.setattr(
        Matching, "write", lambda self, writes: write(self, [w for w in writes if not stays(w)])
    )


fault("counters count what the log repeats", "counters converge")(
    setting(Buffer, done=lambda *_: -1)
)
fault("a unique task has a random id", "one task in a window", test="unit/app/test_unique")(
    setting(unique_ids, _id_of=lambda *_: f"{random.getrandbits(64):016x}")
)


# -- chosen without knowing the simulation ---------------------------------------------------------


@fault("a page of the index leaves out tasks of the same instant", "no task starved", blind=True)
def _(patch: Patch) -> None:
    bounds = sqlite_tasks._bounds

    def careless(*given: Any, **how: Any) -> Any:
        where, values = bounds(*given, **how)
        if "(scheduled_at, id) >" in where:
            where = where.replace("(scheduled_at, id) > (?, ?)", "scheduled_at > ?")
            values = values[:-1]
        return where, values

    patch.setattr(sqlite_tasks, "_bounds", careless)


@fault(
    "a new rate limit keeps the tokens of the old one",
    "rates never exceeded",
    kinds=("rate",),
    blind=True,
)
def _(patch: Patch) -> None:
    def generous(self: Any, new: Any, since: Any, now: Any) -> Any:
        del self
        return rate.Bucket(new.at(now), new, since)

    patch.setattr(rate.Bucket, "under", generous)


@fault("an expired task is delivered", "no expired task runs", blind=True)
def _(patch: Patch) -> None:
    entries = SqliteStore.entries

    def without_expiry(_: Any, change: Change) -> Change:
        if change.rule.action is not Action.DEQUEUE:
            return change
        when = tuple(one for one in change.when if getattr(one, "name", "") != "expires_at")
        return replace(change, when=when)

    def unknown(self: Any, place: Any, **how: Any) -> EntryPage:
        page = entries(self, place, **how)
        if place.state is not State.ENQUEUED:
            return page
        return replace(page, entries=tuple(one._replace(expires_at=None) for one in page.entries))

    rewrite_changes(patch, without_expiry)
    patch.setattr(SqliteStore, "entries", unknown)
