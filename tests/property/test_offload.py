"""Payloads, results and progress kept elsewhere, in any order of events, with crashes anywhere.

Long, because what may happen and what is planted to be found are read together.

No task is ever without what it refers to, and in the end nothing is left that no task refers to.
Calls die before and after their write, the object store goes away, the recorder comes late and
again.  That it would find what is wrong is shown by faults put in.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from headrace.domain.change import Change
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.offload import ObjectStore, Offload, owner_of, text_of
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.task import Overwritable, State, Task
from headrace.domain.write import TaskWrite
from headrace.ops.delivery.orphans import ORPHAN_AGE, ROUND, Orphans
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Noting, Outcome, Store
from headrace.store.memory import MemoryStore
from headrace.store.objects import MemoryObjects
from headrace.store.offload import Offloading
from headrace.testing.stores import SHARD, Streamed
from tests.contract.conftest import World
from tests.manual_clock import ManualClock
from tests.property.stores import everything
from tests.property.walks import walk_far

IDS = [f"task-{number}" for number in range(3)]
MOST = 40
KEPT = 600  # seconds that history and undos last
MAIL, POST = "mail", "post"

ids = st.sampled_from(IDS)
large = st.booleans()
dying = st.sampled_from([None, None, "before", "after"])


class Crashing:
    """Passes everything on; the next commit dies *before* or *after* it, if it is told so.

    Or it is *overtaken*: ``others`` do what they do just before it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dies: str | None = None
        self.others: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(
        self, changes: Sequence[Change], *, partly: bool = False, noting: Noting | None = None
    ) -> list[Outcome]:
        dies, self.dies = self.dies, None
        if dies == "before":
            raise Unavailable("died before the write")
        if dies == "overtaken":
            self.others()
        outcomes = self._store.commit(changes, partly=partly, noting=noting)
        if dies == "after":
            raise Unavailable("died before the answer")
        return outcomes


@dataclass
class Distant(MemoryObjects):
    """Objects that cannot be reached while they are ``away``."""

    away: bool = field(default=False)

    def put(self, contents: Any) -> None:
        self._reach()
        super().put(contents)

    def get(self, names: Any) -> Any:
        self._reach()
        return super().get(names)

    def drop(self, names: Any) -> None:
        self._reach()
        super().drop(names)

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("the objects are away")


class OffloadMachine(RuleBasedStateMachine):
    """Two queues of few ids, and what is kept elsewhere."""

    def offloading(self, store: Store, objects: ObjectStore, new_token: Callable[[], str]) -> Store:
        return Offloading(store, objects, MOST, new_token).store

    def orphans(self, store: Store, objects: ObjectStore) -> Orphans:
        return Orphans(store, objects, self.clock)

    def recorded(self, write: TaskWrite) -> TaskWrite:
        return write

    def others(self, use: UseCases) -> dict[str, object]:
        """Return the use cases that are not the usual ones, by name."""
        del use
        return {}

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.numbers = count()
        self.objects = Distant(self.clock)
        self.tables = MemoryStore()
        self.streamed = Streamed(self.tables, self.clock)
        self.crashing = Crashing(self.streamed.store)
        store = self.offloading(
            cast("Store", self.crashing), self.objects, lambda: f"n{next(self.numbers)}"
        )
        use = build(Settings(admin_key="test"), store, now=self.clock, objects=None)
        self.use = use = use.but(_objects=self.objects, **self.others(use))
        use.deliveries.sleep = self.clock.forward
        self.world = World(store, self.clock, use)
        self.sweeper = self.orphans(self.tables, self.objects)
        for name in (MAIL, POST):
            use.queues.create(name, QueueSettings(history_retention_in_seconds=KEPT))
        self.held: list[Task] = []
        self.undos: list[str] = []
        self.late: list[TaskWrite] = []

    def text(self, owner: str, is_large: bool) -> str:  # noqa: FBT001  drawn
        rest = "x" * MOST if is_large else ""
        return f'"{owner} {next(self.numbers)} {rest}"'

    @contextmanager
    def call(self, dies: str | None = None) -> Iterator[None]:
        """Do a call of somebody who gives up when it fails, or that dies at its first write."""
        self.clock.forward(0.001)
        self.crashing.dies = dies
        with suppress(HeadraceError):
            yield
        self.crashing.dies = None

    # -- what happens to tasks ---------------------------------------------------------------

    @rule(
        task_id=ids,
        is_large=large,
        key=st.sampled_from([None, "k"]),
        overwrites=st.booleans(),
        dies=dying,
    )
    def enqueue(
        self,
        task_id: str,
        is_large: bool,  # noqa: FBT001  drawn
        key: str | None,
        overwrites: bool,  # noqa: FBT001  drawn
        dies: str | None,
    ) -> None:
        payload = self.text(task_id, is_large)
        overwrite: frozenset[Overwritable] = frozenset({"payload"} if key and overwrites else set())
        with self.call(dies):
            spec = TaskSpec(payload, id=task_id, dedupe_key=key, overwrite=overwrite)
            self.use.tasks.enqueue(MAIL, [spec])

    @rule(queue=st.sampled_from([MAIL, POST]), number=st.integers(1, 3))
    def take(self, queue: str, number: int) -> None:
        with self.call():
            for task in self.world.take(queue, number):
                there = task.payload is not None or task.uploaded is not None
                assert there, "a delivery without its payload"
                assert task.own_progress is None, "progress of the delivery before"
                assert (task.progress_ref is None) or task.last_progress, "its text is missing"
                self.held.append(task)

    @rule(
        status=st.sampled_from(["SUCCEEDED", "INFLIGHT", "FAILED", "RELEASED", "MOVED"]),
        is_large=large,
        spawns=st.booleans(),
        number=st.integers(0, 5),
        dies=dying,
    )
    def report(
        self,
        status: str,
        is_large: bool,  # noqa: FBT001  drawn
        spawns: bool,  # noqa: FBT001  drawn
        number: int,
        dies: str | None,
    ) -> None:
        if not self.held:
            return
        task = self.held[number % len(self.held)]
        text = self.text(task.id, is_large)
        of_status: dict[str, dict[str, Any]] = {
            "SUCCEEDED": {"result": text},
            "INFLIGHT": {"progress": text},
            "FAILED": {"delay_in_seconds": 0, "retryable": is_large},
            "MOVED": {"to_queue": POST, "payload": text if spawns else None},
        }
        fields = of_status.get(status, {})
        if status == "SUCCEEDED" and spawns:
            child = TaskSpec(self.text("child", is_large))
            fields["spawn"] = ((POST, child),)
        with self.call(dies):
            self.world.say(task, status, **fields)

    @rule(sizes=st.lists(large, min_size=1, max_size=3))
    def work(self, sizes: list[bool]) -> None:
        """Let whoever took the latest task say how far it is, as workers do most of the time."""
        for is_large in sizes if self.held else ():
            task = self.held[-1]
            with self.call():
                self.world.say(task, "INFLIGHT", progress=self.text(task.id, is_large))

    @rule(task_id=ids)
    def show(self, task_id: str) -> None:
        with self.call():
            task = self.use.texts.shown(self.use.tasks.get(task_id))
            there = task.payload is not None or task.uploaded is not None
            assert there, "a task without its payload"

    @rule(queue=st.sampled_from([MAIL, POST]))
    def restart(self, queue: str) -> None:
        with self.call():
            self.use.bulk.by_filter(queue, BulkAction.RESTART, TaskFilter())

    @rule(task_id=ids, seconds=st.sampled_from([0, KEPT]))
    def delete(self, task_id: str, seconds: int) -> None:
        with self.call():
            undo = self.use.tasks.delete(task_id, undo_in_seconds=seconds)
            if undo is not None:
                self.undos.append(undo.id)

    @rule(number=st.integers(0, 5))
    def undo(self, number: int) -> None:
        if self.undos:
            with self.call():
                self.use.undoing.undo(self.undos[number % len(self.undos)])

    @rule(queue=st.sampled_from([MAIL, POST]), seconds=st.sampled_from([0, KEPT]))
    def purge(self, queue: str, seconds: int) -> None:
        with self.call():
            states = (State.SUCCEEDED, State.DEAD)
            done = self.use.queues.purge(queue, states, undo_in_seconds=seconds)
            if done.undo is not None:
                self.undos.append(done.undo.id)

    # -- what goes wrong, and what cleans up ----------------------------------------------------

    @rule(away=st.booleans())
    def objects_go_or_come(self, away: bool) -> None:  # noqa: FBT001  drawn
        self.objects.away = away

    @rule(number=st.integers(1, 8), again=st.booleans())
    def record(self, number: int, again: bool) -> None:  # noqa: FBT001  drawn
        """Let the recorder see some writes, which come again if it is not sure of them."""
        self.late += [self.recorded(write) for write in self.streamed.taken()]
        seen = self.late[:number]
        self.use.recording.record(SHARD, seen)
        if not again:
            del self.late[:number]

    @rule(seconds=st.sampled_from([1, 60, 700, 90_000]))
    def passes(self, seconds: int) -> None:
        self.clock.forward(seconds)
        with suppress(Unavailable):
            self.use.reaping.run()
        now = self.clock()
        for task in everything(self.tables):
            if task.retained_until is not None and task.retained_until <= now:
                self.forget(task)

    def forget(self, task: Task) -> None:
        """Remove what is past its retention, as the table's own broom does."""
        with self.tables._lock:  # noqa: SLF001  all there is, by its owner's leave
            self.tables._put(task, None)  # noqa: SLF001  likewise
        self.streamed.note(task, None, forgotten=True)

    @rule()
    def sweep(self) -> None:
        with suppress(Unavailable):
            self.sweeper.sweep()

    # -- what always holds -------------------------------------------------------------------

    def referred(self) -> set[str]:
        tasks = everything(self.tables)
        return {one.name for task in tasks for one in task.offloaded.values()}

    @invariant()
    def no_task_is_without_its_object(self) -> None:
        there = MemoryObjects.get(self.objects, self.referred())
        for task in everything(self.tables):
            for field_name, one in task.offloaded.items():
                assert owner_of(one.name) == task.id, "an object of another task"
                assert one.name in there, f"{task.state} {task.id} has lost its {field_name}"
                assert text_of(there[one.name], one) is not None
                assert getattr(task, field_name) is None, f"two texts for one {field_name}"
            if task.spent is None:
                assert (task.payload is None) == (task.payload_ref is not None)

    def teardown(self) -> None:
        self.objects.away = False
        self.record(1_000_000, again=False)
        self.clock.forward((ROUND + ORPHAN_AGE + timedelta(seconds=1)).total_seconds())
        self.sweeper.sweep()
        left = {one.name for one in self.objects.list("", 10_000)}
        assert left == self.referred(), "an object without a task"


FEW = settings(
    max_examples=10, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
QUICK = settings(FEW, max_examples=600, stateful_step_count=25, phases=[Phase.generate])


def test_every_task_has_its_texts_and_nothing_else_is_kept() -> None:
    run_state_machine_as_test(OffloadMachine, settings=FEW)


@pytest.mark.slow
def test_every_task_has_its_texts_for_very_many_steps() -> None:
    walk_far(OffloadMachine)


def found(machine: type[OffloadMachine]) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=QUICK)


class InsertsFirst(Offloading):
    """Writes the task, and only then what it refers to."""

    def commit(
        self, changes: Sequence[Change], *, partly: bool = False, noting: Noting | None = None
    ) -> list[Outcome]:
        offload = Offload(self._most, self._new_token, {})
        outcomes = self._store.commit(
            [offload.plan(one) for one in changes], partly=partly, noting=noting
        )
        self._objects.put(offload.contents)
        return outcomes


class DropsWhatFailed(Offloading):
    """Drops at once what it has written when the answer says that the write failed."""

    def commit(
        self, changes: Sequence[Change], *, partly: bool = False, noting: Noting | None = None
    ) -> list[Outcome]:
        offload = Offload(self._most, self._new_token, {})
        planned = [offload.plan(one) for one in changes]
        self._objects.put(offload.contents)
        try:
            return self._store.commit(planned, partly=partly, noting=noting)
        except Unavailable:
            self._objects.drop(list(offload.contents))
            raise


class ForgetsReferences(Offloading):
    """Writes a small text beside the reference to the large one before it."""

    def _put(self, changes: Sequence[Change]) -> Sequence[Change]:
        planned = super()._put(changes)
        return [
            replace(one, clear=tuple(name for name in one.clear if not name.endswith("_ref")))
            for one in planned
        ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Offloading, ForgetsReferences])
def test_a_small_text_takes_the_place_of_a_large_one(kind: type[Offloading]) -> None:
    class Machine(OffloadMachine):
        def offloading(self, store: Store, objects: ObjectStore, new_token: Any) -> Store:
            return kind(store, objects, MOST, new_token).store

    machine = Machine()
    machine.enqueue("a", is_large=False, key=None, overwrites=False, dies=None)
    machine.take(MAIL, 1)
    machine.work([True, False])

    with nullcontext() if kind is Offloading else pytest.raises(AssertionError, match="two texts"):
        machine.no_task_is_without_its_object()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [InsertsFirst, DropsWhatFailed])
def test_a_fault_of_the_writes_is_found(kind: type[Offloading]) -> None:
    class Faulty(OffloadMachine):
        def offloading(self, store: Store, objects: ObjectStore, new_token: Any) -> Store:
            return kind(store, objects, MOST, new_token).store

    found(Faulty)


def always_the_same() -> str:
    return "same"


def test_names_that_are_used_again_are_found() -> None:
    class Faulty(OffloadMachine):
        def offloading(self, store: Store, objects: ObjectStore, new_token: Any) -> Store:
            return Offloading(store, objects, MOST, always_the_same).store

    found(Faulty)


def test_a_recorder_that_drops_what_an_undo_may_bring_back_is_found() -> None:
    class Faulty(OffloadMachine):
        def recorded(self, write: TaskWrite) -> TaskWrite:
            hidden = write.after is not None and write.after.spot is None
            return write._replace(after=None) if hidden else write

    found(Faulty)


class ByAgeAlone(Orphans):
    """Takes whatever is old for an orphan, as a rule of S3 could."""

    def _orphans(self, old: Any) -> list[str]:
        return [one.name for one in old]


class BlindToDeleted(Orphans):
    """Asks only for the tasks that people see."""

    def _orphans(self, old: Any) -> list[str]:
        names = [one.name for one in old]
        found = self.store.read([name.partition("/")[0] for name in names])
        used = {one.name for task in found.values() for one in task.offloaded.values()}
        return [name for name in names if name not in used]


class Rests(Orphans):
    """Never looks."""

    def sweep(self) -> int:
        return 0


@pytest.mark.parametrize("kind", [Orphans, BlindToDeleted])
def test_what_an_undo_may_bring_back_is_no_orphan(kind: type[Orphans]) -> None:
    class Machine(OffloadMachine):
        def orphans(self, store: Store, objects: ObjectStore) -> Orphans:
            return kind(store, objects, self.clock)

    machine = Machine()
    machine.enqueue("a", is_large=True, key=None, overwrites=False, dies=None)
    machine.passes(90_000)
    machine.delete("a", KEPT)
    machine.sweep()

    with nullcontext() if kind is Orphans else pytest.raises(AssertionError, match="has lost"):
        machine.no_task_is_without_its_object()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ByAgeAlone, Rests])
def test_a_fault_of_the_sweep_is_found(kind: type[Orphans]) -> None:
    class Faulty(OffloadMachine):
        def orphans(self, store: Store, objects: ObjectStore) -> Orphans:
            return kind(store, objects, self.clock)

    found(Faulty)
