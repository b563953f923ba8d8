"""Waiting for steps of a workflow: first for their turn, then for their end.

A step has no task before its turn; the batch that makes it says which one it has become.  Where a
step before it is dead, or all was cancelled, that never comes, and whoever waits is told.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from headrace.client.calls import ApiCall, PagedCall, batches, tasks
from headrace.client.calls.waiting import CallSteps, TaskLook, if_kept, look_at_task, result_of
from headrace.domain.errors import NotFound, TaskDead
from headrace.domain.workflow import part_id, root_id
from headrace.wire.batches import BatchSeen
from headrace.wire.tasks import Task

T = TypeVar("T")
_Steps: TypeAlias = Generator[ApiCall[Any], Any, T]


def every(pages: PagedCall[T]) -> _Steps[list[T]]:
    """Ask for all pages of a list; return its entries."""
    found: list[T] = []
    cursor: str | None = None
    while True:
        page = yield pages.at(cursor)
        found += page.entries
        cursor = page.cursor
        if cursor is None:
            return found


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

    def ended(self, found: StepsLook, seconds: float | None) -> dict[str, Task]:
        """Return the tasks by their steps, as they were *found* after so many *seconds*.

        Raises TimeoutError where one has not ended.
        """
        ended = {name: one.task for name, one in found.tasks.items() if one and one.ended}
        left = [name for name in self.names if name not in ended]
        if left:
            which = f"step {left[0]} of workflow {self.id}"
            raise TimeoutError(f"{which} has not ended within {seconds or 0:g} s")
        return ended

    def look(self) -> CallSteps[StepsLook]:
        """Look at the steps.  Raises TaskDead where one will not be made, and NotFound."""
        self._pause = self._pause or (yield from self._poll_after())
        if any(name not in self._made for name in self.names):
            yield from self._look_for_turns()
        found: dict[str, TaskLook | None] = {}
        for name in self.names:
            found[name] = yield from self._task(name)
        return StepsLook(found, self._pause)

    def _poll_after(self) -> _Steps[float]:
        """After how many seconds the service says to look again: with a task that it keeps."""
        try:
            look: TaskLook = yield look_at_task(root_id(self.id, 0), payload=False)
            return max(_SOONEST, look.poll_after_seconds)
        except NotFound:
            return _USUAL

    def _task(self, name: str) -> _Steps[TaskLook | None]:
        if name not in self._made:
            return None
        with if_kept(self._made[name]):
            look: TaskLook = yield look_at_task(self._made[name], payload=False)
            return look

    def _look_for_turns(self) -> _Steps[None]:
        prefix = part_id(self.id, "")
        whole: BatchSeen = yield batches.get_batch(self.id)
        parts: dict[str, BatchSeen] = {}
        if whole.dead or whole.cancelled_at:
            for one in (yield from every(batches.list_batches(prefix=prefix))):
                parts[one.id.removeprefix(prefix)] = one
        else:
            for name in self.names:
                if name not in self._made:
                    parts[name] = yield batches.get_batch(prefix + name)
        for name in [*self.names, *sorted(self._needed.difference(self.names))]:
            if name in parts:
                yield from self._check(name, parts[name])
        for name in set(self.names) & parts.keys():
            for callback in parts[name].callbacks.values():
                self._made[name] = str(callback.task_id)

    def _check(self, name: str, part: BatchSeen) -> _Steps[None]:
        """Raise TaskDead where the step *name*, which *part* makes, will not be made."""
        which = f"step {name} of workflow {self.id}"
        if any(one.task_id is None for one in part.callbacks.values()):
            raise NotFound(f"{which} was not made: its queue is missing")
        if part.callbacks:
            return
        if part.stopped:
            raise TaskDead(f"{which} is not made: the workflow was cancelled")
        if part.finished_at is not None and part.dead_ids:
            result_of((yield tasks.get_task(part.dead_ids[0], payload=False)))  # which is dead


_SOONEST = 0.05  # seconds
_USUAL = 1.0
