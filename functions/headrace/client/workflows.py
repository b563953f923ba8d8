"""Workflows: tasks that wait for others, each enqueued by the batch of those it waits for.

A step is a call of a task function, as ``load.s(day)``.  Before its turn, a step is only a batch
that will enqueue it.

- The **whole** is a batch of all steps.  Its id is the workflow's.
- Each step that waits has a **join**: a batch, named for workflow and step, of the steps that it
  waits for, whose callback is the step.  The function finds their results in ``ctx.batch``.
- If more than three steps wait for one, **relays** are put between; see `workflow_graph`.

All ids are derived from the workflow's, so starting it again under its id changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, overload

from headrace.client.calls import ApiCall
from headrace.client.calls.batches import create_batch
from headrace.client.calls.tasks import enqueue_tasks, get_task
from headrace.client.calls.waiting import result_of
from headrace.client.operations import Operation, with_queues
from headrace.client.sending import (
    RESULTS,
    FunctionCall,
    SpawnedTask,
    StepResult,
    check_call,
    in_batch,
)
from headrace.client.settings import utc_now
from headrace.client.workflow_graph import WorkflowGraph
from headrace.client.workflow_runs import AsyncWorkflowRun, T_co, WorkflowRun
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.ids import new_task_id
from headrace.domain.limits import RELAY_TASK
from headrace.domain.workflow import STEP_TAG, WORKFLOW_TAG, is_relay, part_id, root_id
from headrace.wire.tasks import Task

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient
    from headrace.client.client import Client

T = TypeVar("T")

OnFailure: TypeAlias = Literal["stop", "go_on"]
"""What happens to the steps after a dead step.

With ``"stop"`` they wait until the dead step is restarted; with ``"go_on"`` they are enqueued.
"""

_NAME_LENGTH: Final = 32
_TOGETHER: Final = limits.BODY_BYTES // limits.PAYLOAD_BYTES - 1  # tasks that fit one call


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step: what it calls, and the names of the steps that it waits for."""

    name: str
    call: SpawnedTask
    after: tuple[str, ...] = ()


class StepName(str, Generic[T_co]):
    """The name of a step, by which checkers know what its function returns."""

    __slots__ = ()

    @property
    def result(self) -> T_co:
        """The result, as an argument of a later step: ``wf.add("b", save.s(a.result))``."""
        return StepResult(str(self))  # type: ignore[return-value]  # the function gets the result


class Workflow(Generic[T_co]):
    """A graph of steps.

    Args:
        on_failure: what happens to the steps after a dead step: ``"stop"``, or ``"go_on"``.
        on_ended: a call for when every step has ended.
        on_succeeded: a call for when every step has succeeded.
        on_failed: a call for when the first step is dead.
        expires_in_seconds: how long the service remembers it; 30 days.

    Raises InvalidRequest for another word.

    """

    def __init__(
        self,
        *,
        on_failure: OnFailure = "stop",
        on_ended: SpawnedTask | None = None,
        on_succeeded: SpawnedTask | None = None,
        on_failed: SpawnedTask | None = None,
        expires_in_seconds: float | None = None,
    ) -> None:
        if on_failure not in {"stop", "go_on"}:
            message = f'must be "stop" or "go_on", not {on_failure!r:.100}'
            raise InvalidRequest.of("on_failure", message)
        self.on_failure = on_failure
        self.steps: dict[str, WorkflowStep] = {}
        self.last: tuple[str, ...] = ()
        self._last_is_group = False
        self._whole = {"on_ended": on_ended, "on_succeeded": on_succeeded, "on_failed": on_failed}
        self._expires = expires_in_seconds

    @overload
    def add(
        self, name: str, call: FunctionCall[T], *, after: Iterable[str] = ()
    ) -> StepName[T]: ...
    @overload
    def add(self, name: str, call: SpawnedTask, *, after: Iterable[str] = ()) -> StepName[Any]: ...
    def add(self, name: str, call: SpawnedTask, *, after: Iterable[str] = ()) -> StepName[Any]:
        """Add a step that is enqueued when the steps of *after* have succeeded; return its name.

        *after* may be one name: ``after="load"``.  The call also waits for steps whose results are
        its arguments.
        Raises InvalidRequest for a name that is taken or invalid, for an unknown step in *after*,
        and for anything but a call.
        """
        check_call(call, "call")
        if is_relay(name):
            raise InvalidRequest.of("name", "must not begin with -")
        if not limits.TASK_ID_RE.fullmatch(name) or len(name) > _NAME_LENGTH:
            raise InvalidRequest.of("name", limits.id_in_words(_NAME_LENGTH))
        if name in self.steps:
            raise InvalidRequest.of("name", f"is taken: there is a step {name}")
        named = (after,) if isinstance(after, str) else tuple(after)
        before = tuple(dict.fromkeys((*named, *_steps_named(call))))
        for one in before:
            if one not in self.steps:
                raise InvalidRequest.of("after", f"names {one}, which is no step before this")
        self.steps[name] = WorkflowStep(name, call, before)
        self.ends_with((name,), group=False)
        return StepName(name)

    def ends_with(self, names: Sequence[str], *, group: bool) -> None:
        """Set the steps whose results are the workflow's; those of a *group* are a list."""
        self.last, self._last_is_group = tuple(names), group

    def start(self, client: "Client", *, id: str | None = None) -> WorkflowRun[T_co]:
        """Start the workflow; starting it again under its *id* changes nothing.

        Missing queues of an app's functions are created.  Raises NotFound or InvalidRequest for a
        missing queue that cannot be created, InvalidRequest if another task has the id of a step,
        and Forbidden if the client may not see that task.
        """
        _check_client(client)
        name = id or new_workflow_id()
        client.run(self._starting(name))
        return WorkflowRun(name, client, self)

    async def astart(
        self, client: "AsyncClient", *, id: str | None = None
    ) -> AsyncWorkflowRun[T_co]:
        """Do the same from an event loop."""
        _check_client(client)
        name = id or new_workflow_id()
        await client.run(self._starting(name))
        return AsyncWorkflowRun(name, client, self)

    def _starting(self, id: str) -> Operation[None]:
        def send() -> Operation[None]:
            for call in self.calls(id):
                answer = yield call
                for result in answer if isinstance(answer, list) else ():
                    if result.outcome == "EXISTING":
                        with suppress(NotFound):  # a step that has ended and is not kept
                            there = result.task or (yield get_task(str(result.id), payload=False))
                            _check_step(there, id)

        return with_queues(self._made(), send)

    def _made(self) -> Iterator[SpawnedTask | None]:
        """Yield the steps and the callbacks."""
        yield from (step.call for step in self.steps.values())
        yield from self._whole.values()

    def calls(self, id: str) -> Iterator[ApiCall[Any]]:
        """Yield the calls that start it; a batch comes before its members."""
        if not self.steps:
            raise InvalidRequest.of("steps", "must be one at least")
        if len(id) + 1 + _NAME_LENGTH > _ID_LENGTH or not limits.TASK_ID_RE.fullmatch(id):
            most = _ID_LENGTH - 1 - _NAME_LENGTH
            raise InvalidRequest.of("id", limits.id_in_words(most))
        yield create_batch(
            id=id, total=len(self.steps), expires_in_seconds=self._expires, **self._whole
        )
        graph = self._graph()
        for name in graph.last_first():
            task = self._task(id, name, graph)
            stops = self.on_failure == "stop"
            yield create_batch(
                id=part_id(id, name),
                total=len(graph.joins[name]),
                on_succeeded=task if stops else None,
                on_ended=None if stops else task,
                expires_in_seconds=self._expires,
            )
        roots: dict[str, list[SpawnedTask]] = {}
        for name, root in self.roots(id).items():
            task = replace(self._task(id, name, graph), id=root)
            roots.setdefault(task.queue, []).append(task)
        for queue, tasks in roots.items():
            for first in range(0, len(tasks), _TOGETHER):
                yield enqueue_tasks(queue, tasks[first : first + _TOGETHER])

    def roots(self, id: str) -> dict[str, str]:
        """Return the task ids of the steps that wait for no other, by their names."""
        names = [name for name, step in self.steps.items() if not step.after]
        return {name: root_id(id, place) for place, name in enumerate(names)}

    def before(self, name: str) -> set[str]:
        """Return the nodes with a join that a step waits for, with itself and relays."""
        joins = self._graph().joins
        found, left = set[str](), [name]
        while left:
            one = left.pop()
            if one in joins and one not in found:
                found.add(one)
                left += joins[one]
        return found

    def read(self, tasks: Mapping[str, Task]) -> Any:  # noqa: ANN401  as the type hints say
        """Return the result of the last step by its ended *tasks*.

        After a group these are its results in a list.  Raises TaskDead, and Unreadable.
        """
        found = [self.read_step(name, tasks[name]) for name in self.last]
        return found if self._last_is_group else found[0]

    def read_step(self, name: str, task: Task) -> Any:  # noqa: ANN401  as the type hint says
        """Return the result of a step by its ended *task*.  Raises as read()."""
        call = self.steps[name].call
        return (call.result_of if isinstance(call, FunctionCall) else result_of)(task)

    def _graph(self) -> WorkflowGraph:
        after, room = {}, {}
        for step in self.steps.values():
            after[step.name] = step.after
            taken = 1 + len(set(step.call.batches or ()))  # the whole, and its own
            room[step.name] = max(1, limits.TASK_BATCHES - taken)
        return WorkflowGraph.of(after, room)

    def _task(self, id: str, name: str, graph: WorkflowGraph) -> SpawnedTask:
        step = self.steps[graph.first_fed(name)]
        joins = [part_id(id, one) for one in graph.feeds.get(name, ())]
        tags = {**(step.call.tags or {}), WORKFLOW_TAG: id, STEP_TAG: step.name}
        call = replace(step.call, id=None, dedupe_key=None, overwrite_on_duplicate=None, tags=tags)
        return in_batch(_relay(call, id), *joins) if is_relay(name) else in_batch(call, id, *joins)


def results_named(call: SpawnedTask) -> dict[str, str | list[str] | None]:
    """Return the arguments of *call* that are results of steps; None: of all before it."""
    found = call.payload.get(RESULTS) if isinstance(call, FunctionCall) else None
    return found or {}


def _steps_named(call: SpawnedTask) -> Iterator[str]:
    for steps in results_named(call).values():
        yield from [steps] if isinstance(steps, str) else steps or ()


def _check_client(client: object) -> None:
    """Raise TypeError for what is no client: an app, say."""
    if not hasattr(client, "run"):
        kind = type(client).__name__
        raise TypeError(
            f"a workflow starts with a client, as app.client is one, or by astart(AsyncClient());"
            f" {kind} is none"
        )


def _check_step(task: Task, id: str) -> None:
    """Raise InvalidRequest if *task* has the id of a step but is not in the workflow."""
    if id not in task.batches:
        message = f"is taken: task {task.id} of queue {task.queue} is no step of workflow {id}"
        raise InvalidRequest.of("id", message)


def _relay(call: SpawnedTask, id: str) -> SpawnedTask:
    """Return a relay to where *call* goes, due at once."""
    return replace(
        call,
        payload={"task": RELAY_TASK, "args": {}},
        batches=None,
        tags={WORKFLOW_TAG: id},
        retry_strategy=None,
        delay_in_seconds=None,
        scheduled_at=None,
        expires_at=None,
    )


_ID_LENGTH: Final = 64


def new_workflow_id() -> str:
    """Return a new id of a workflow."""
    return "wfl_" + new_task_id(utc_now()).removeprefix("tsk_")
