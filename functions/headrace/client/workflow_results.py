"""Waiting for steps of a workflow: first for their turn, then for their end.

A step has no task before its turn; the batch that makes it says which one it has become.  Where a
step before it is dead, or all was cancelled, that never comes, and whoever waits is told.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.client.calls.waiting import TaskLook, if_kept, look_at_task, result_of
from headrace.domain.errors import NotFound, TaskDead
from headrace.domain.workflow import part_id, root_id
from headrace.wire.batches import BatchSeen
from headrace.wire.tasks import Task

if TYPE_CHECKING:
    from headrace.client.client import Client


class StepsPlan(Protocol):
    """What is known of the steps of a workflow before it runs."""

    @property
    def steps(self) -> Collection[str]:
        """Their names."""

    def roots(self, id: str) -> Mapping[str, str]:
        """The tasks of the steps that wait for none, by their names, in the workflow of this id."""

    def before(self, name: str) -> set[str]:
        """The nodes that make a step come, itself among them."""


@dataclass(frozen=True, slots=True)
class StepsLook:
    """The tasks of steps, by their names; None for those whose turn has not come."""

    tasks: Mapping[str, TaskLook | None]
    poll_after_seconds: float

    @property
    def ended(self) -> bool:
        """Whether all of them have ended."""
        return all(one is not None and one.ended for one in self.tasks.values())


@dataclass(slots=True)
class StepsWaiting:
    """Somebody who waits for the end of steps, *names*, of the workflow of an *id*.

    Raises NotFound for a name that the *plan* does not have.
    """

    id: str
    client: "Client"
    plan: StepsPlan
    names: Sequence[str]
    _made: dict[str, str] = field(init=False)  # tasks of steps, as far as they are known
    _needed: set[str] = field(init=False)
    _pause: float = 0.0

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in self.plan.steps:
                raise NotFound(f"workflow {self.id} has no step {name}")
        self._made = dict(self.plan.roots(self.id))
        self._needed = set().union(*map(self.plan.before, self.names))

    def ended(self, seconds: float | None) -> dict[str, Task]:
        """Wait up to so many *seconds*, None without end; return the tasks by their steps.

        Raises TimeoutError, TaskDead where a step will not be made, and NotFound.
        """
        found = self.client._looked(self._look, seconds)  # noqa: SLF001  a client's own clock
        tasks = {name: one.task for name, one in found.tasks.items() if one and one.ended}
        left = [name for name in self.names if name not in tasks]
        if left:
            which = f"step {left[0]} of workflow {self.id}"
            raise TimeoutError(f"{which} has not ended within {seconds or 0:g} s")
        return tasks

    def _look(self) -> StepsLook:
        self._pause = self._pause or self._poll_after()
        if any(name not in self._made for name in self.names):
            self._look_for_turns()
        return StepsLook({name: self._task(name) for name in self.names}, self._pause)

    def _poll_after(self) -> float:
        """After how many seconds the service says to look again: with a task that it keeps."""
        try:
            call = look_at_task(root_id(self.id, 0), payload=False)
            return max(_SOONEST, self.client.send(call).poll_after_seconds)
        except NotFound:
            return _USUAL

    def _task(self, name: str) -> TaskLook | None:
        if name not in self._made:
            return None
        with if_kept(self._made[name]):
            return self.client.send(look_at_task(self._made[name], payload=False))

    def _look_for_turns(self) -> None:
        whole, prefix = self.client.get_batch(self.id), part_id(self.id, "")
        if whole.dead or whole.cancelled_at:
            every = self.client.list_batches(prefix=prefix)
            parts = {one.id.removeprefix(prefix): one for one in every}
        else:
            left = [name for name in self.names if name not in self._made]
            parts = {name: self.client.get_batch(prefix + name) for name in left}
        for name in [*self.names, *sorted(self._needed.difference(self.names))]:
            if name in parts:
                self._check(name, parts[name])
        for name in set(self.names) & parts.keys():
            for callback in parts[name].callbacks.values():
                self._made[name] = str(callback.task_id)

    def _check(self, name: str, part: BatchSeen) -> None:
        """Raise TaskDead where the step *name*, which *part* makes, will not be made."""
        which = f"step {name} of workflow {self.id}"
        if any(one.task_id is None for one in part.callbacks.values()):
            raise NotFound(f"{which} was not made: its queue is missing")
        if part.callbacks:
            return
        if part.stopped:
            raise TaskDead(f"{which} is not made: the workflow was cancelled")
        if part.finished_at is not None and part.dead_ids:
            result_of(self.client.get_task(part.dead_ids[0], payload=False))  # which is dead


_SOONEST = 0.05  # seconds
_USUAL = 1.0
