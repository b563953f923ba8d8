"""Workflows that were started: looked at, cancelled, and waited for, with threads or a loop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, overload

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.workflow_results import StepsLook, StepsWaiting
from headrace.domain.errors import InvalidRequest
from headrace.domain.workflow import is_relay, part_id
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
class WorkflowState:
    """A workflow as it stands.

    ``whole`` counts the steps that exist; ``joins`` are what steps wait for, by their names;
    ``tasks`` are the first hundred steps that exist.
    """

    whole: BatchSeen
    joins: dict[str, BatchSeen] = field(default_factory=dict)
    tasks: Sequence[BatchResult] = ()

    @property
    def waiting(self) -> list[str]:
        """The names of the steps whose turn will come."""
        return [name for name, join in self.joins.items() if not (join.callbacks or join.stopped)]


@dataclass(frozen=True, slots=True)
class WorkflowRun(Generic[T_co]):
    """A workflow that was started, by its *id*; whoever knows that may look at it and cancel it.

    Who has started it here knows its steps too: it may wait for results.
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

        Without a *step* it is the last one of a chain, the callback of a chord, the one that was
        added last; where a chain ends with a group, all of that, and a list of their results.
        *timeout* is in seconds, or a timedelta; None waits for as long as it takes.
        Raises TaskDead if the step, or one without which it is not made, is dead or was cancelled;
        TimeoutError when time is over; NotFound for a step or workflow that is not there, and for a
        task that is not kept; Unreadable for what does not fit the hint; and InvalidRequest for a
        run that was not started here.
        """
        waiting = _Waiting(self.id, self.plan, step, timeout)
        found = self.client._looked(waiting.steps.look, waiting.seconds)  # noqa: SLF001  by its own clock
        return waiting.result(found)

    def show(self) -> WorkflowState:
        """Return how it stands.  Raises NotFound."""
        whole = self.client.get_batch(self.id)
        joins = _joins(self.id, self.client.list_batches(prefix=part_id(self.id, "")))
        return WorkflowState(whole, joins, self.client.batch_results(self.id).results)

    def cancel(self) -> int:
        """Cancel the whole: no step is made any more, and those that have not ended are cancelled.

        Returns how many are, by this call.  Raises NotFound.
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
    async def result(self, step: "StepName[T]", *, timeout: Duration | None = None) -> T: ...  # noqa: ASYNC109  likewise
    @overload
    async def result(self, step: str, *, timeout: Duration | None = None) -> Any: ...  # noqa: ANN401, ASYNC109  of a name alone; likewise
    async def result(self, step: str | None = None, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  likewise
        """Wait for the end of a step and return its result; as that of WorkflowRun."""
        waiting = _Waiting(self.id, self.plan, step, timeout)
        found = await self.client._looked(waiting.steps.look, waiting.seconds)  # noqa: SLF001  by its own clock
        return waiting.result(found)

    async def show(self) -> WorkflowState:
        """Return how it stands.  Raises NotFound."""
        whole = await self.client.get_batch(self.id)
        parts = self.client.list_batches(prefix=part_id(self.id, ""))
        joins = _joins(self.id, [one async for one in parts])
        return WorkflowState(whole, joins, (await self.client.batch_results(self.id)).results)

    async def cancel(self) -> int:
        """Cancel the whole; as that of WorkflowRun.  Raises NotFound."""
        return (await self.client.cancel_batch(self.id)).cancelled


class _Waiting:
    """Somebody who waits for the result of a step, or of the last one."""

    def __init__(
        self, id: str, plan: "Workflow[Any] | None", step: str | None, timeout: Duration | None
    ) -> None:
        self.seconds = checks.optional("timeout", timeout, (0, inf))
        if plan is None:
            message = "can be waited for where the workflow was started"
            raise InvalidRequest.of("result", message)
        self._plan, self._step = plan, None if step is None else str(step)
        self.steps = StepsWaiting(id, plan, plan.last if self._step is None else (self._step,))

    def result(self, found: StepsLook) -> Any:  # noqa: ANN401  as the type hints say
        """Return the result by what was *found*.  Raises as WorkflowRun.result() does."""
        tasks = self.steps.ended(found, self.seconds)
        if self._step is None:
            return self._plan.read(tasks)
        return self._plan.read_step(self._step, tasks[self._step])


def _joins(id: str, parts: Iterable[BatchSeen]) -> dict[str, BatchSeen]:
    named = {batch.id.removeprefix(part_id(id, "")): batch for batch in parts}
    return {name: batch for name, batch in named.items() if not is_relay(name)}
