"""Uploaded payloads, in any order of events: some never come, and references come twice.

The machine of what is kept elsewhere, with producers that upload beside it: no task is ever without
what it was made of, one reference makes one task, and in the end nothing is left of an upload that
no task was made of.  Enqueues are overtaken by the recorder and the sweep between their look at the
object and their write.  Faults put in are found by short stories.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from headrace.domain.errors import Unavailable
from headrace.domain.offload import ObjectStore, Upload
from headrace.domain.plan import TaskSpec
from headrace.history.recorder import Recording
from headrace.ops.delivery.orphans import ORPHAN_AGE, Orphans
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.ops.tasks.uploads import Uploads
from headrace.runtime.wiring import UseCases
from headrace.store.base import Store
from headrace.store.objects import MemoryObjects
from tests.property.stores import everything
from tests.property.test_offload import FEW, MAIL, MOST, POST, OffloadMachine, Rests, ids
from tests.property.walks import walk_far

HOUR = 3_600

numbers = st.integers(0, 5)
queues = st.sampled_from([MAIL, POST])
fates = st.sampled_from([None, None, "before", "after", "overtaken"])


class UploadMachine(OffloadMachine):
    """Producers that upload payloads, or do not, and make tasks of them once or more."""

    granting: type[Uploads] = Uploads
    recorder: type[Recording] = Recording
    ahead = timedelta(0)  # that the clock of the sweep is

    def others(self, use: UseCases) -> dict[str, object]:
        return {
            "uploads": self.granting(
                use.queues, self.objects, on=True, key=b"", now=self.clock, new_token=self.token
            ),
            "recording": self.recorder(use.recording.counters, objects=self.objects),
        }

    def orphans(self, store: Store, objects: ObjectStore) -> Orphans:
        return Orphans(store, objects, lambda: self.clock() + self.ahead)

    def __init__(self) -> None:
        super().__init__()
        self.crashing.others = self.others_go_on
        self.grants: list[Upload] = []
        self.contents: dict[str, bytes] = {}

    def token(self) -> str:
        return f"token-{next(self.numbers):04}"

    def others_go_on(self) -> None:
        """Let the recorder catch up, and the sweep look."""
        self.record(1_000_000, again=True)
        self.sweep()

    @rule(task_id=ids, queue=queues)
    def grant(self, task_id: str, queue: str) -> None:
        content = f"{task_id} {next(self.numbers)} ".encode() * MOST
        digest = sha256(content).hexdigest()
        with self.call():
            upload = self.use.uploads.grant(
                queue, size=len(content), digest=digest, task_id=task_id, origin="http://here"
            ).upload
            self.grants.append(upload)
            self.contents[upload.name] = content

    @rule(number=numbers)
    def upload(self, number: int) -> None:
        """Let a granted upload come, for the first time or again; none comes after its hour."""
        if self.grants:
            upload = self.grants[-1 - number % len(self.grants)]
            if self.clock() < upload.until:
                with suppress(Unavailable):
                    self.objects.put({upload.name: self.contents[upload.name]})

    @rule(number=numbers, queue=queues, times=st.integers(1, 2), fate=fates)
    def make(self, number: int, queue: str, times: int, fate: str | None) -> None:
        """Make a task of a reference, whatever has become of it."""
        if not self.grants:
            return
        upload = self.grants[-1 - number % len(self.grants)]
        there = upload.name in MemoryObjects.get(self.objects, [upload.name])
        with self.call(fate):
            results = self.use.tasks.enqueue(queue, [spec_of(upload)] * times)
            made = [one for one in results if one.outcome is EnqueueOutcome.CREATED]
            assert len(made) <= 1, "two tasks of one reference"
            if made:
                assert there, "a task of what was never uploaded"
                assert upload.fault(queue, self.clock()) is None

    @rule(number=numbers, of=numbers, queue=queues, fate=fates)
    def spawn(self, number: int, of: int, queue: str, fate: str | None) -> None:
        """Let a worker make a task of a reference with its report."""
        if not self.grants or not self.held:
            return
        upload = self.grants[-1 - number % len(self.grants)]
        task = self.held[of % len(self.held)]
        with self.call(fate):
            self.world.say(task, "SUCCEEDED", spawn=((queue, spec_of(upload)),))

    @rule()
    def an_hour_passes(self) -> None:
        self.clock.forward(HOUR)

    def tasks_of(self, upload: Upload) -> int:
        return sum(
            upload.name in {one.name for one in task.offloaded.values()}
            for task in everything(self.tables)
        )

    def teardown(self) -> None:
        assert all(self.tasks_of(one) <= 1 for one in self.grants), "two tasks of one reference"
        super().teardown()


def spec_of(upload: Upload) -> TaskSpec:
    return TaskSpec("null", id=upload.task_id, upload=upload)


def test_every_task_has_its_upload_and_nothing_else_is_kept() -> None:
    run_state_machine_as_test(UploadMachine, settings=FEW)


@pytest.mark.slow
def test_every_task_has_its_upload_for_very_many_steps() -> None:
    walk_far(UploadMachine)


# ----------------------------------------------------------------------------- planted faults


class DropsAtOnce(Recording):
    """Drops an upload as soon as a task lets go of it, like any other object."""

    def _drop_objects(self, readings: Any) -> None:
        if self.objects is not None:
            self.objects.drop([name for reading in readings for name in reading.let_go])


class Trusting(Uploads):
    """Makes a task of any reference, whether it was uploaded or not."""

    def faults(self, new: Any, queue: str) -> dict[str, str]:
        del new, queue
        return {}


class ForEver(Uploads):
    """Takes a reference after its hour too, if the object is there."""

    def faults(self, new: Any, queue: str) -> dict[str, str]:
        found = super().faults(new, queue)
        over = {name for name, fault in found.items() if " is over" in fault}
        there = self.objects.sizes(over) if self.objects is not None else {}
        return {name: fault for name, fault in found.items() if name not in there}


@contextmanager
def lost() -> Iterator[None]:
    with pytest.raises(AssertionError, match="has lost its payload"):
        yield


def story(**faults: Any) -> UploadMachine:
    """Return a machine with *faults*, in which a payload was uploaded."""
    machine: UploadMachine = type("Faulty", (UploadMachine,), faults)()
    machine.grant("a", MAIL)
    machine.upload(0)
    return machine


@pytest.mark.parametrize("kind", [Recording, DropsAtOnce])
def test_a_recorder_behind_takes_nothing_from_a_task_that_is_made_anew(
    kind: type[Recording],
) -> None:
    machine = story(recorder=kind)
    machine.make(0, MAIL, 2, None)
    machine.delete("a", 0)
    machine.make(0, MAIL, 1, "overtaken")
    with nullcontext() if kind is Recording else lost():
        machine.no_task_is_without_its_object()
    assert machine.tasks_of(machine.grants[0]) == 1


@pytest.mark.parametrize("kind", [Uploads, Trusting])
def test_what_never_came_makes_no_task(kind: type[Uploads]) -> None:
    machine = story(granting=kind)
    machine.grant("b", MAIL)
    with nullcontext() if kind is Uploads else pytest.raises(AssertionError, match="never"):
        machine.make(0, MAIL, 1, None)
    with nullcontext() if kind is Uploads else lost():
        machine.no_task_is_without_its_object()


@pytest.mark.parametrize("kind", [Uploads, ForEver])
def test_a_reference_is_over_before_its_object_may_be_dropped(kind: type[Uploads]) -> None:
    """A late recorder drops what was deleted, while the hour ends and the reference comes again."""
    machine = story(granting=kind)
    machine.make(0, MAIL, 1, None)
    machine.delete("a", 0)
    machine.an_hour_passes()
    machine.clock.forward(HOUR)
    with suppress(AssertionError):  # the machine sees that it was over, and here what comes of it
        machine.make(0, MAIL, 1, "overtaken")
    with nullcontext() if kind is Uploads else lost():
        machine.no_task_is_without_its_object()


@pytest.mark.parametrize("ahead", [timedelta(0), ORPHAN_AGE])
def test_a_sweep_leaves_what_a_task_may_yet_be_made_of(ahead: timedelta) -> None:
    machine = story(ahead=ahead)
    machine.make(0, MAIL, 1, "overtaken")
    with lost() if ahead else nullcontext():
        machine.no_task_is_without_its_object()


@pytest.mark.parametrize("sweeps", [True, False])
def test_what_nobody_made_a_task_of_is_swept_in_the_end(*, sweeps: bool) -> None:
    faults = {} if sweeps else {"orphans": lambda self, *_: Rests(self.tables, None, self.clock)}
    machine = story(**faults)
    expected = pytest.raises(AssertionError, match="an object without a task")
    with nullcontext() if sweeps else expected:
        machine.teardown()
