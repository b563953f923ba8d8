"""Task functions and raw handlers.

Long, because a task is called, enqueued and bound in many ways, each with its signature.
"""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
)

from headrace.client.app import checks
from headrace.client.app.clients import AppClients, PreparedTask
from headrace.client.app.context import Context
from headrace.client.app.dedupe_keys import DedupeKey, key_maker
from headrace.client.app.execution import TaskRoute, Timeouts
from headrace.client.app.failing import ErrorRules
from headrace.client.app.handles import AsyncEnqueuedTask, EnqueuedTask
from headrace.client.app.options import ELSEWHERE, CallOptions, Options
from headrace.client.app.outcomes import OnLargeResult, Reject
from headrace.client.app.signature import Signature, cannot_be_imported, fitting
from headrace.client.calls.waiting import result_of
from headrace.client.codec import JsonValue
from headrace.client.operations import Errors, checked, raises
from headrace.client.options import named, no_attribute
from headrace.client.sending import RESULTS, FunctionCall, NewTask, StepResult, make_call
from headrace.domain.errors import InvalidRequest
from headrace.wire.base import Unreadable
from headrace.wire.tasks import Task

C = ParamSpec("C")  # what the function is called with
P = ParamSpec("P")  # what is enqueued: the same without the context
R = TypeVar("R")  # the result of a task
V = TypeVar("V")  # what a plain call returns: of a coroutine function, a coroutine
TASK: Final = "task"
ARGS: Final = "args"


class HowItRuns(TypedDict):
    """How a function is run, as declared and checked."""

    timeouts: Timeouts
    isolate: bool
    on_large_result: OnLargeResult | None
    error_rules: ErrorRules


class Known(HowItRuns):
    """What is declared with every function."""

    name: str
    queue: str


class Runnable(ABC):
    """A function of an app, and how an attempt calls it."""

    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], **known: Unpack[Known]) -> None:
        self.function, self.name, self.queue = function, known["name"], known["queue"]
        self.timeouts, self.on_large_result = known["timeouts"], known["on_large_result"]
        self.error_rules = known["error_rules"]
        kind: Literal["sync", "async"] = (
            "async" if inspect.iscoroutinefunction(function) else "sync"
        )
        limits = self.timeouts
        self.route = TaskRoute(kind, self.name, limits.soft, limits.hard, known["isolate"])
        self.signature = Signature.of(function)

    @abstractmethod
    def arguments(self, payload: JsonValue) -> dict[str, Any]:
        """Return the arguments in *payload*.  Raises InvalidRequest if they do not fit."""

    def invoke(self, ctx: Context) -> object:
        """Call the function with the payload.  Raises Reject for arguments that do not fit."""
        return self.call(ctx, ctx.payload)

    def call(self, ctx: Context, payload: JsonValue) -> object:
        """Call the function with the arguments in *payload*.  Raises Reject."""
        try:
            args = self.arguments(payload)
        except InvalidRequest as error:
            raise Reject(error.detail) from None
        if self.signature.context is not None:
            args[self.signature.context] = ctx
        return self.function(**args)


class RawHandler(Runnable):
    """The function of ``@app.handler``, which receives the payload.

    Raises TypeError for a function that takes more arguments.
    """

    def __init__(self, function: Callable[..., Any], **known: Unpack[Known]) -> None:
        super().__init__(function, **known)
        taken = len(self.signature.hints)
        if taken > 1:
            raise TypeError(
                f"{self.signature} is given the payload as one argument, and takes {taken}"
            )

    def invoke(self, ctx: Context) -> object:
        """Call the function, without the payload if it takes none."""
        if self.signature.hints:
            return super().invoke(ctx)
        return self.function(**({self.signature.context: ctx} if self.signature.context else {}))

    def arguments(self, payload: JsonValue) -> dict[str, Any]:
        """The payload, under the name of its parameter, if there is one."""
        hints = self.signature.hints
        return {name: fitting("payload", payload, hint) for name, hint in hints.items()}


class TaskCaller(Generic[P, R]):
    """Enqueues calls of a task function, with declared options or options for some calls.

    An enqueued task has the result type of the function; of a coroutine function, its result.
    """

    def __init__(
        self, function: "TaskFunction[..., Any, P, R]", options: Options, clients: AppClients
    ) -> None:
        self._function = function
        self._options = options
        self._clients = clients
        self._to = options.given.get("queue", function.queue)
        options.task(None, clients.now())  # says now what is wrong with the options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedTask[R]:
        """Enqueue a call with these arguments, and return its task.

        Raises InvalidRequest naming an argument that does not fit, PayloadTooLarge over 256 KiB,
        NotFound if the queue is missing and this key may not create it.
        """
        clients, task = self._clients, self._task(args, kwargs)
        client = clients.client
        made = client.run(clients.enqueue(self._to, task))
        return EnqueuedTask.by(client, made, self._function.result_of)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncEnqueuedTask[R]:
        """Do the same from an event loop."""
        clients, task = self._clients, self._task(args, kwargs)
        client = clients.async_client
        made = await client.run(clients.enqueue(self._to, task))
        return AsyncEnqueuedTask.by(client, made, self._function.result_of)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Return the task that `enqueue` would send, for an outbox.  Raises InvalidRequest."""
        return PreparedTask(self._to, self._task(args, kwargs), self._clients.codec)

    def s(self, *args: P.args, **kwargs: P.kwargs) -> FunctionCall[R]:
        """Return the call as a member of a batch or a step of a workflow.

        An argument may be the result of an earlier step: ``previous.result``.
        Raises InvalidRequest naming an argument that does not fit.
        """
        self._function.warn_if_unknown_elsewhere()
        task = self._function.task(args, kwargs, self._options, step=True)
        maker = self._clients.queues
        return make_call(self._to, task, self._function.result_of, maker)

    def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, errors: Errors = "raise"
    ) -> list[EnqueuedTask[R]]:
        """Enqueue any number of calls, each given as its arguments by name; results in order.

        *errors* is as in `Client.enqueue_many`.  Raises InvalidRequest naming the place of an entry
        of *calls* that is no mapping.
        """
        raising = raises(errors)
        return checked(list(self.enqueue_each(calls, errors="return")), raising=raising)

    def enqueue_each(
        self, calls: Iterable[Mapping[str, Any]], *, errors: Errors = "raise"
    ) -> Iterator[EnqueuedTask[R]]:
        """Do the same in constant memory: calls are sent as their results are consumed."""
        steps = self._clients.enqueue_each(self._to, self._tasks(calls), errors)
        client, result_of = self._clients.client, self._function.result_of
        for made in client.stream(steps):
            yield EnqueuedTask.by(client, made, result_of)

    async def aenqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, errors: Errors = "raise"
    ) -> list[AsyncEnqueuedTask[R]]:
        """Do what enqueue_many() does, from an event loop."""
        raising = raises(errors)
        made = [one async for one in self.aenqueue_each(calls, errors="return")]
        return checked(made, raising=raising)

    async def aenqueue_each(
        self, calls: Iterable[Mapping[str, Any]], *, errors: Errors = "raise"
    ) -> AsyncIterator[AsyncEnqueuedTask[R]]:
        """Do what enqueue_each() does, from an event loop."""
        steps = self._clients.enqueue_each(self._to, self._tasks(calls), errors)
        client, result_of = self._clients.async_client, self._function.result_of
        async for made in client.stream(steps):
            yield AsyncEnqueuedTask.by(client, made, result_of)

    def _tasks(self, calls: Iterable[Mapping[str, Any]]) -> Iterator[NewTask]:
        for option in ("id", "dedupe_key"):
            if option in self._options.given:
                raise checks.wrong(option, "would make one task of many calls")
        return (self._task((), checks.arguments(place, args)) for place, args in enumerate(calls))

    def _task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewTask:
        self._function.warn_if_unknown_elsewhere()
        return self._function.task(args, kwargs, self._options)


class TaskFunction(Runnable, TaskCaller[P, R], Generic[C, V, P, R]):
    """A task function.  Calling it calls the function itself."""

    function: Callable[C, V]

    def __init__(
        self,
        function: Callable[C, V],
        *,
        declared: Options,
        dedupe_key: DedupeKey | None,
        clients: AppClients,
        **known: Unpack[Known],
    ) -> None:
        update_wrapper(self, function)
        Runnable.__init__(self, function, **known)
        self.declared = declared
        self._warned = False
        self._key = key_maker(dedupe_key, self.name, self.signature)
        unique: DedupeKey = True if dedupe_key is None else dedupe_key
        self._unique_key = key_maker(unique, self.name, self.signature)
        if isinstance(declared.given.get("expires"), datetime):
            raise checks.wrong("expires", "must be seconds or a timedelta, not datetime")
        TaskCaller.__init__(self, self, declared, clients)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"<task {self.name} of queue {self.queue}>"

    if not TYPE_CHECKING:  # type checkers report missing attributes

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (always raises)
            """Raise AttributeError, which knows what other task queues call it."""
            raise no_attribute(self, name, ELSEWHERE, self.__name__)

    # ----------------------------------------------------------------------------------- to enqueue

    def warn_if_unknown_elsewhere(self) -> None:
        """Warn, once, that no worker but one in this process can know this function."""
        if self._warned or self._clients.runs_here or not cannot_be_imported(self.name):
            return
        self._warned = True
        warnings.warn(
            f"this task is named {self.name}, and only a worker in this process can run it: its"
            " function is in no file that another could import. Move it to a module, or give the"
            " name that a worker knows it by: @app.task(name=…)",
            stacklevel=4,
        )

    @named
    def options(self, **options: Unpack[CallOptions]) -> "TaskCaller[P, R]":
        """Choose for the next enqueue: ``send.options(delay=60).enqueue(to="…")``.

        See `CallOptions` for their meaning.
        """
        chosen = Options(**options)
        return TaskCaller(self, chosen.over(self.declared), self._clients)

    def envelope(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of a call with *args*.  Raises InvalidRequest naming the argument."""
        return self._envelope(self.signature.bind((), args))

    def new_task(self, args: Mapping[str, Any], options: Options) -> NewTask:
        """Return the task of a call with *args*.  Raises InvalidRequest naming the argument."""
        return self.task((), args, options.over(self.declared))

    def dedupe_key(self, args: Mapping[str, Any]) -> str | None:
        """Return the key of a call with *args*, as declared."""
        return self._key(self.signature.bind((), args))

    def task(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Options,
        *,
        step: bool = False,
    ) -> NewTask:
        """Return the task of a call; arguments of a *step* may be results of steps before it.

        Raises InvalidRequest naming the argument.
        """
        given = self.signature.bind(args, kwargs)
        results = {name: one.step for name, one in given.items() if isinstance(one, StepResult)}
        if results:
            if not step:
                field = f"args.{next(iter(results))}"
                raise checks.wrong(field, "is the result of a step, which only .s() takes")
            known = {name: one for name, one in given.items() if name not in results}
            payload = {**self._envelope(known), RESULTS: results}
            return options.task(payload, self._clients.now())
        payload = self._envelope(given)
        queue = options.given.get("queue", self.queue)
        key_of, seconds = self._key, options.given.get("unique_for")
        if seconds is not None:
            key_of = self._unique_key
            self._clients.queues.check_kept(queue, seconds)
        if "dedupe_key" not in options.given and (key := key_of(given)) is not None:
            options = Options(dedupe_key=key).over(options)
        options.check_key()
        return options.task(payload, self._clients.now())

    def _envelope(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {TASK: self.name, ARGS: self.signature.plain(given)}

    def result_of(self, task: Task) -> Any:  # noqa: ANN401  as the type hint says
        """Return the result of a call, as `EnqueuedTask.result` describes.

        Raises TaskDead, and Unreadable.
        """
        result = result_of(task)
        if task.trail:
            return result  # another function's, maybe
        try:
            return fitting("result", result, self.signature.result)
        except InvalidRequest as error:
            if self.on_large_result is not None:
                return result  # what was kept of it
            raise Unreadable(f"task {task.id} of {self.name}: {error.detail}") from None

    # --------------------------------------------------------------------------------------- to run

    def invoke(self, ctx: Context) -> object:
        """Call the function, with the results of steps before it where the payload asks for them.

        Raises Reject for arguments that do not fit, and for a step that has no result.
        """
        results = ctx.payload.get(RESULTS)
        if not results:
            return self.call(ctx, ctx.payload)
        if ctx.task.batch is None:
            names = ", ".join(results)
            raise Reject(
                f"{self.signature} needs results of steps as {names}: no step is before it"
            )
        if self.route.kind == "async":
            return self._acall(ctx, results)
        return self.call(ctx, _with(ctx.payload, ctx.batch.results_of(results)))

    async def _acall(self, ctx: Context, results: Mapping[str, Any]) -> object:
        called = self.call(ctx, _with(ctx.payload, await ctx.batch.aresults_of(results)))
        return await called if inspect.isawaitable(called) else called

    def arguments(self, payload: JsonValue) -> dict[str, Any]:
        """Return the arguments of the call in *payload*."""
        return self.signature.typed(payload[ARGS])


def _with(payload: JsonValue, results: Mapping[str, JsonValue]) -> JsonValue:
    return {**payload, ARGS: {**payload[ARGS], **results}}


def is_call(payload: object) -> bool:
    """Whether *payload* is a call of a task function."""
    return (
        isinstance(payload, dict)
        and payload.keys() - {RESULTS} == {TASK, ARGS}
        and isinstance(payload[ARGS], dict)
        and isinstance(payload.get(RESULTS, {}), dict)
    )
