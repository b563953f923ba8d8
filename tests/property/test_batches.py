"""A batch calls back once, whatever happens, and faults that are planted are caught.

Those of the rules have a story of a few steps each, which the right code passes.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from headrace.domain.batch import BatchDelta, TaskBatch, hash_of
from headrace.history.counter_buffer import Buffer
from headrace.history.counters import Counters
from headrace.ops.tasks.batches import BatchOperations
from tests.property.batches import SHARDS, BatchMachine
from tests.property.walks import walk_far


class Hasty(TaskBatch):
    """Ends when nothing is live."""

    @property
    def complete(self) -> bool:
        return self.direct == self.total and self.live == 0


class HastyOperations(BatchOperations):
    """Goes by a wrong rule."""

    def _find(self, batch_id: str) -> TaskBatch | None:
        found = super()._find(batch_id)
        names = TaskBatch.__dataclass_fields__
        return found and Hasty(**{name: getattr(found, name) for name in names})


class ForgetfulOperations(BatchOperations):
    """Does not know again which version of a buffer it has counted."""

    number = count()

    def count(
        self, key: str, delta: BatchDelta, *, buffer: str, version: int, at: datetime
    ) -> None:
        buffer = f"{buffer} {next(self.number)}"
        super().count(key, delta, buffer=buffer, version=version, at=at)


class DeafOperations(BatchOperations):
    """Believes of every batch that its first death was told."""

    def failure_known(self, key: str) -> bool:
        return True


class NamesakeOperations(BatchOperations):
    """Goes by the id alone: what was a member of another batch of that counts too."""

    def count(
        self, key: str, delta: BatchDelta, *, buffer: str, version: int, at: datetime
    ) -> None:
        found = self._find(key.partition(".")[0])
        key = key if found is None else found.key
        super().count(key, delta, buffer=buffer, version=version, at=at)


class TwiceOperations(BatchOperations):
    """Does not note which callbacks it has made, and makes them under new ids."""

    chance = random.Random(1)

    def _find(self, batch_id: str) -> TaskBatch | None:
        found = super()._find(batch_id)
        if found is None:
            return None
        at = found.created_at.replace(microsecond=self.chance.randrange(1_000_000))
        return replace(found, fired={}, created_at=at)


class PatientCounters(Counters):
    """Lets every end wait for its minute."""

    def post(self, buffer: Buffer) -> None:
        for delta in buffer.batches.values():
            delta.due = False
        super().post(buffer)


class HoardingCounters(Counters):
    """Adds to what it has posted."""

    def post(self, buffer: Buffer) -> None:
        held = dict(buffer.batches)
        super().post(buffer)
        buffer.batches = held


def run(machine: type[BatchMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_batch_calls_back_once_and_never_early() -> None:
    run(BatchMachine, 5, 40)


@pytest.mark.slow
def test_a_batch_calls_back_once_in_very_many_steps() -> None:
    walk_far(BatchMachine)


# Ids are random, and with them the shards that members are in: a story asks for no certain one.


def children_are_seen_later(machine: BatchMachine) -> None:
    """The end of the only one is seen before its children, all but those of its own shard."""
    machine.begin(1, closed=True)
    (parent,) = machine.members
    machine.report(0, "SUCCEEDED", [True] * 3, again=False)
    for _ in range(8):
        machine.record(hash_of(parent) % SHARDS, 1, 0, [])


def all_is_seen_again(machine: BatchMachine) -> None:
    """A process ends when it has counted everything, and another begins where it began."""
    machine.begin(1, closed=True)
    machine.report(0, "SUCCEEDED", [], again=False)
    for back, fates in ((0, ["unanswered"]), (5, [])):
        for shard in range(SHARDS):
            machine.record(shard, 6, back, [*fates])
        machine.new_process()


def one_of_several_dies(machine: BatchMachine) -> None:
    """Others of its shard live on, so nothing but the death itself says that it is of interest."""
    machine.begin(5, closed=True)
    for _ in range(3):
        machine.take()
    shards = [hash_of(task.id) % SHARDS for task in machine.held]
    which = next(at for at, shard in enumerate(shards) if shards.count(shard) > 1)
    # An odd number is what cannot be tried again.
    machine.report(which if which % 2 else which + 5, "FAILED", [], again=False)


def members_outlive_their_batch(machine: BatchMachine) -> None:
    machine.begin(2, closed=False)
    machine.begin_anew(really=True)
    machine.report(0, "SUCCEEDED", [], again=False)


def a_write_is_lost(machine: BatchMachine) -> None:
    """The write that counts a second member of a shard is lost, and that member counted again."""
    machine.begin(SHARDS + 1, closed=True)
    shards = [hash_of(member) % SHARDS for member in machine.members]
    which = next(shard for shard in shards if shards.count(shard) > 1)
    machine.record(which, 1, 0, [])
    machine.record(which, 1, 0, ["lost"])
    for _ in shards:
        machine.report(0, "SUCCEEDED", [], again=False)


def test_a_member_whose_first_count_was_lost_is_live_once() -> None:
    tell(BatchMachine(), a_write_is_lost)


@pytest.mark.parametrize(
    ("fault", "story"),
    [
        (HastyOperations, children_are_seen_later),
        (ForgetfulOperations, all_is_seen_again),
        (TwiceOperations, all_is_seen_again),
        (DeafOperations, one_of_several_dies),
        (NamesakeOperations, members_outlive_their_batch),
    ],
)
def test_what_is_planted_is_seen(
    fault: Callable[..., BatchOperations], story: Callable[[BatchMachine], None]
) -> None:
    class Planted(BatchMachine):
        operations = fault

    tell(BatchMachine(), story)

    with pytest.raises(AssertionError):
        tell(Planted(), story)


def tell(machine: BatchMachine, story: Callable[[BatchMachine], None]) -> None:
    story(machine)
    machine.nothing_is_told_twice()
    machine.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [PatientCounters, HoardingCounters])
def test_the_machine_finds_what_is_planted_in_counters(fault: Callable[..., Counters]) -> None:
    class Planted(BatchMachine):
        counters = fault

    found(Planted)


def found(machine: type[BatchMachine]) -> None:
    # Ids are random, so what was found may not come again: that is how it is told then.
    with pytest.raises((AssertionError, Flaky)):
        run(machine, 1_000, 60)
