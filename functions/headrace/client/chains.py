"""Chains, groups and chords: workflows with steps in a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.client.sending import RESULTS, FunctionCall, SpawnedTask, WithResult, check_call
from headrace.client.workflow_runs import AsyncWorkflowRun, T_co, WorkflowRun
from headrace.client.workflows import OnFailure, Workflow, results_named
from headrace.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient
    from headrace.client.client import Client

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallGroup(WithResult[list[T_co]], Generic[T_co]):
    """Calls that run at the same time, after the same steps.

    Raises InvalidRequest for an argument that is no call, and for an empty group.
    """

    calls: tuple[SpawnedTask, ...]

    def __post_init__(self) -> None:
        """Check the calls."""
        if not self.calls:
            raise InvalidRequest.of("calls", "must be one at least")
        for place, call in enumerate(self.calls):
            check_call(call, f"calls[{place}]")

    def start(self, client: "Client", *, id: str | None = None) -> WorkflowRun[list[T_co]]:
        """Start the calls as a workflow; see `Workflow.start`."""
        return chain(self).start(client, id=id)

    async def astart(
        self, client: "AsyncClient", *, id: str | None = None
    ) -> AsyncWorkflowRun[list[T_co]]:
        """Do the same from an event loop."""
        return await chain(self).astart(client, id=id)


@overload
def group(*calls: FunctionCall[T]) -> CallGroup[T]: ...
@overload
def group(*calls: SpawnedTask) -> CallGroup[Any]: ...
def group(*calls: SpawnedTask) -> CallGroup[Any]:
    """Return calls that run at the same time; start the group, or put it in a `chain`."""
    return CallGroup(calls)


@overload
def chain(
    *steps: *tuple[*tuple[SpawnedTask | CallGroup[Any], ...], WithResult[T]],
    on_failure: OnFailure = "stop",
) -> Workflow[T]: ...
@overload
def chain(
    *steps: SpawnedTask | CallGroup[Any], on_failure: OnFailure = "stop"
) -> Workflow[Any]: ...
def chain(  # type: ignore[misc]  # mypy finds no tuple with a last one in any *steps
    *steps: Any, on_failure: OnFailure = "stop"
) -> Workflow[Any]:
    """Return a workflow of calls, or groups of calls, of which each waits for the one before it.

    An argument of a call may be ``previous.result``: the result of the call before it, or the list
    of results of the group before it.

    The result of the chain is that of its last call, or the list of results of its last group.
    """
    made = Workflow[Any](on_failure=on_failure)
    before: tuple[str, ...] = ()
    grouped = False
    for place, step in enumerate(steps, 1):
        calls = step.calls if isinstance(step, CallGroup) else (step,)
        names = (
            [str(place)] if len(calls) == 1 else [f"{place}-{n}" for n in range(1, len(calls) + 1)]
        )
        ready = [_after(call, before, group=grouped, first=place == 2) for call in calls]  # noqa: PLR2004
        before = tuple(
            made.add(name, call, after=before) for name, call in zip(names, ready, strict=True)
        )
        grouped = isinstance(step, CallGroup)
        made.ends_with(before, group=grouped)
    return made


@overload
def chord(
    calls: CallGroup[Any], callback: FunctionCall[T], *, on_failure: OnFailure = "stop"
) -> Workflow[T]: ...
@overload
def chord(
    calls: CallGroup[Any], callback: SpawnedTask, *, on_failure: OnFailure = "stop"
) -> Workflow[Any]: ...
def chord(
    calls: CallGroup[Any], callback: SpawnedTask, *, on_failure: OnFailure = "stop"
) -> Workflow[Any]:
    """Return a workflow of a group, and a callback for when all of its calls have ended."""
    return chain(calls, callback, on_failure=on_failure)


def _after(call: SpawnedTask, before: Sequence[str], *, group: bool, first: bool) -> SpawnedTask:
    """Return *call* as a step of a chain, after the steps *before* it, which may be a *group*.

    The results of a group that comes *first* are in its order, so that the call needs no names.
    """
    results = results_named(call)
    if not results:
        return call
    if not before:
        raise InvalidRequest.of("steps", "must have one before that with previous.result")
    if group and first:
        return call
    steps: str | list[str] = list(before) if group else before[0]
    named = {name: steps if one is None else one for name, one in results.items()}
    return replace(call, payload={**call.payload, RESULTS: named})
