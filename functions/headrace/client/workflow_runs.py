"""Started workflows: show, cancel and wait for them, with threads or an event loop.

A step has no task before its turn; the batch that enqueues the task shows its id.  So a wait for a
step waits for its turn, then for its end.  If an earlier step is dead, or if the workflow was
cancelled, the wait raises TaskDead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, overload

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.calls import batches, tasks
from headrace.client.calls.waiting import LookPace, TaskLook, if_kept, look_at_task, result_of
from headrace.client.operations import FromClient, Operation, every_entry, whole
from headrace.domain.errors import InvalidRequest, NotFound, TaskDead
from headrace.domain.workflow import is_relay, part_id, root_id
from headrace.wire.batches import BatchResult, BatchSeen

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # known to every checker

    from headrace.client.aio import AsyncClient
    from headrace.client.client import Client
    from headrace.client.workflows import StepName, Workflow

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepsLook:
    """The tasks of steps by their names; None for a step that has no task yet."""

    tasks: Mapping[str, TaskLook | None]
    poll_after_seconds: float

    @property
    def ended(self) -> bool:
        """Whether all of them have ended."""
        return all(one is not None and one.ended for one in self.tasks.values())


_SOONEST = 0.05  # seconds
_USUAL = 1.0


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """The state of a workflow.

    ``whole`` is the batch of all steps; ``joins`` has the batch that each step waits for, by the
    name of the step; ``tasks`` has the first hundred steps with a task.
    """

    whole: BatchSeen
    joins: dict[str, BatchSeen] = field(default_factory=dict)
    tasks: Sequence[BatchResult] = ()

    @property
    def waiting(self) -> list[str]:
        """The names of the steps that still wait for others."""
        return [name for name, join in self.joins.items() if not (join.callbacks or join.stopped)]


@dataclass(frozen=True, slots=True)
class WorkflowRun(Generic[T_co]):
    """A started workflow.  Its *id* is enough to show it and to cancel it.

    Only the program that started it knows its steps, and can wait for results.
    """

    id: str
    client: "Client" = field(repr=False)
    plan: "Workflow[T_co] | None" = field(default=None, repr=False, compare=False)

    @overload
    def result(self, step: None = None, *, timeout: Duration | None = None) -> T_co: ...
    @overload
    def result(self, step: "StepName[T]", *, timeout: Duration | None = None) -> T: ...
    @overload
    def result(self, step: str, *, timeout: Duration | None = None) -> Any: ...  # noqa: ANN401  of a name alone
    def result(self, step: str | None = None, *, timeout: Duration | None = None) -> Any:
        """Wait for the end of a step and return its result, as its function's type hint says.

        Without a *step* it waits for the last step of a chain, the callback of a chord, or the step
        that was added last.  If a chain ends with a group, the result is a list.
        *timeout* is in seconds, or a timedelta; None waits without end.
        Raises TaskDead if the step, or a step that it waits for, is dead or was cancelled;
        TimeoutError; NotFound for a missing step or workflow, and for a task that is not kept;
        Unreadable for a result that does not fit the hint; and InvalidRequest for a run that
        another program started.
        """
        return self.client.run(_Waiting(self.id, self.plan, step, timeout).result())

    def show(self) -> WorkflowState:
        """Return the state of the workflow.  Raises NotFound."""
        return self.client.run(_state(self.id))

    def cancel(self) -> int:
        """Cancel the workflow: its waiting and running steps, and the steps after them.

        Returns the number of steps that this call cancelled.  Raises NotFound.
        """
        return self.client.cancel_batch(self.id).cancelled


@dataclass(frozen=True, slots=True)
class AsyncWorkflowRun(Generic[T_co]):
    """The same for an event loop: that of the call."""

    id: str
    client: "AsyncClient" = field(repr=False)
    plan: "Workflow[T_co] | None" = field(default=None, repr=False, compare=False)

    @overload
    async def result(self, step: None = None, *, timeout: Duration | None = None) -> T_co: ...  # noqa: ASYNC109  as the synchronous twin
    @overload
    async def result(self, step: "StepName[T]", *, timeout: Duration | None = None) -> T: ...  # noqa: ASYNC109  as in WorkflowRun
    @overload
    async def result(self, step: str, *, timeout: Duration | None = None) -> Any: ...  # noqa: ANN401, ASYNC109  of a name alone; as in WorkflowRun
    async def result(self, step: str | None = None, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  as in WorkflowRun
        """Wait for the end of a step and return its result; as that of WorkflowRun."""
        return await self.client.run(_Waiting(self.id, self.plan, step, timeout).result())

    async def show(self) -> WorkflowState:
        """Return the state of the workflow.  Raises NotFound."""
        return await self.client.run(_state(self.id))

    async def cancel(self) -> int:
        """Cancel the workflow; as that of WorkflowRun.  Raises NotFound."""
        return (await self.client.cancel_batch(self.id)).cancelled


class _Waiting:
    """A wait for the result of the step of a workflow, or of the last one.

    Raises NotFound for a step that the *plan* does not have.
    """

    def __init__(
        self, id: str, plan: "Workflow[Any] | None", step: str | None, timeout: Duration | None
    ) -> None:
        self._seconds = checks.optional("timeout", timeout, (0, inf))
        if plan is None:
            message = "can be waited for where the workflow was started"
            raise InvalidRequest.of("result", message)
        self._id, self._plan, self._step = id, plan, None if step is None else str(step)
        self._names = plan.last if self._step is None else (self._step,)
        for name in self._names:
            if name not in plan.steps:
                raise NotFound(f"workflow {id} has no step {name}")
        self._made = dict(plan.roots(id))  # the known tasks of steps
        before = set().union(*map(plan.before, self._names))
        self._relevant = [*self._names, *sorted(before.difference(self._names))]

    def result(self) -> Operation[Any]:
        """Wait for the result.  Raises as WorkflowRun.result() does."""
        pace = LookPace(self._seconds, turn=0, clock=(yield FromClient("clock")))
        poll_after = yield from self._poll_after()
        found = yield from self._look(poll_after)
        while not found.ended:
            if (yield from pace.next(found)) is None:
                left = next(name for name, one in found.tasks.items() if not (one and one.ended))
                which = f"step {left} of workflow {self._id}"
                raise TimeoutError(f"{which} has not ended within {self._seconds or 0:g} s")
            found = yield from self._look(poll_after)
        tasks = {name: one.task for name, one in found.tasks.items() if one}
        if self._step is None:
            return self._plan.read(tasks)
        return self._plan.read_step(self._step, tasks[self._step])

    def _poll_after(self) -> Operation[float]:
        """Return after how many seconds the service says to look again at a task that it keeps."""
        try:
            look: TaskLook = yield look_at_task(root_id(self._id, 0), payload=False)
            return max(_SOONEST, look.poll_after_seconds)
        except NotFound:
            return _USUAL

    def _look(self, poll_after: float) -> Operation[StepsLook]:
        """Look at the steps.  Raises TaskDead for a step that will not be made, and NotFound."""
        if any(name not in self._made for name in self._names):
            yield from self._look_for_turns()
        found: dict[str, TaskLook | None] = dict.fromkeys(self._names)
        for name in self._made.keys() & set(self._names):
            with if_kept(self._made[name]):
                found[name] = yield look_at_task(self._made[name], payload=False)
        return StepsLook(found, poll_after)

    def _look_for_turns(self) -> Operation[None]:
        prefix = part_id(self._id, "")
        whole: BatchSeen = yield batches.get_batch(self._id)
        parts: dict[str, BatchSeen] = {}
        if whole.dead or whole.cancelled_at:
            for one in (yield from every_entry(batches.list_batches(prefix=prefix))):
                parts[one.id.removeprefix(prefix)] = one
        else:
            for name in set(self._names) - self._made.keys():
                parts[name] = yield batches.get_batch(prefix + name)
        for name in self._relevant:
            if name in parts:
                yield from self._check(name, parts[name])
        for name in parts.keys() & set(self._names):
            for callback in parts[name].callbacks.values():
                self._made[name] = str(callback.task_id)

    def _check(self, name: str, part: BatchSeen) -> Operation[None]:
        """Raise TaskDead if the step *name*, which *part* makes, will not be made."""
        which = f"step {name} of workflow {self._id}"
        if any(one.task_id is None for one in part.callbacks.values()):
            raise NotFound(f"{which} was not made: its queue is missing")
        if part.callbacks:
            return
        if part.stopped:
            raise TaskDead(f"{which} is not made: the workflow was cancelled")
        if part.finished_at is not None and part.dead_ids:
            result_of((yield tasks.get_task(part.dead_ids[0], payload=False)))  # which is dead


def _state(id: str) -> Operation[WorkflowState]:
    whole_batch: BatchSeen = yield batches.get_batch(id)
    prefix = part_id(id, "")
    parts = yield from every_entry(batches.list_batches(prefix=prefix))
    named = {batch.id.removeprefix(prefix): batch for batch in parts}
    joins = {name: batch for name, batch in named.items() if not is_relay(name)}
    results = yield from whole(batches.batch_results(id))
    return WorkflowState(whole_batch, joins, results.results)
