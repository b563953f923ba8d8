"""Code of the program that runs around its workers, processes and tasks."""

import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final, Literal, TypeAlias, TypeVar

from headrace.client.app.context import Context
from headrace.safe_logging import safe_logger

Middleware: TypeAlias = Callable[[Context], Iterator[None] | AsyncIterator[None]]
Event: TypeAlias = Literal["worker_start", "worker_stop", "process_start", "task_start", "task_end"]

F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M", bound=Middleware)
Plain = TypeVar("Plain", bound=Callable[[], object])
OnStart = TypeVar("OnStart", bound=Callable[[Context], object])
OnEnd = TypeVar("OnEnd", bound=Callable[[Context, str], object])

_ARGUMENTS: Final = {"task_start": ("ctx",), "task_end": ("ctx", "outcome")}
_log: Final = safe_logger("headrace.task")


class AppHooks:
    """The hooks and middlewares of an app; each decorator returns the function as it is."""

    def __init__(self) -> None:
        self._sync: list[Callable[[Context], AbstractContextManager[Any]]] = []
        self._all: list[
            Callable[[Context], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
        ] = []
        self._hooks: dict[str, list[Callable[..., object]]] = defaultdict(list)

    def middleware(self, function: M) -> M:
        """Put a generator function around every attempt, the first declared outermost.

        It yields once; what the handler raises is raised there, and what it raises itself is how
        the attempt ends.  An async generator function stands around async handlers only.

        Raises TypeError for anything but a generator function of one argument.
        """
        _check_arguments(function, "a middleware", ("ctx",))
        if inspect.isasyncgenfunction(function):
            self._all.append(asynccontextmanager(function))
        elif inspect.isgeneratorfunction(function):
            made = contextmanager(function)
            self._all.append(made)
            self._sync.append(made)
        else:
            raise TypeError(f"{function!r} is no middleware: write a function of ctx that yields")
        return function

    def on_worker_start(self, function: Plain) -> Plain:
        """Call *function* when a worker starts; an error that it raises ends the worker."""
        return self._hook("worker_start", function)

    def on_worker_stop(self, function: Plain) -> Plain:
        """Call *function* when a worker has stopped; an error that it raises is logged."""
        return self._hook("worker_stop", function)

    def on_process_start(self, function: Plain) -> Plain:
        """Call *function* in each process that runs handlers, before its first task.

        That is the process of the worker, and each child process of isolated tasks: open connection
        pools here.  An error that it raises ends the process.
        """
        return self._hook("process_start", function)

    def on_task_start(self, function: OnStart) -> OnStart:
        """Call *function* with the context of each attempt, before middlewares and handler.

        An error that it raises fails the attempt.
        """
        return self._hook("task_start", function)

    def on_task_end(self, function: OnEnd) -> OnEnd:
        """Call *function* with the context and the outcome of each attempt, when it has ended.

        The outcome is the status of its report (``SUCCEEDED``, ``FAILED``, ``RELEASED``,
        ``MOVED``), ``LOST`` or ``CANCELLED``.  An error that *function* raises is logged.
        """
        return self._hook("task_end", function)

    @property
    def has_start_hooks(self) -> bool:
        """Whether a function is called when a worker or a process starts."""
        return bool(self._hooks.keys() & {"worker_start", "process_start"})

    def call_hooks(self, event: Event, *args: object) -> None:
        """Call the functions declared for *event*, in their order.  Raises what they raise."""
        for function in self._hooks.get(event, ()):
            function(*args)

    def call_end_hooks(self, event: Event, *args: object) -> None:
        """Do the same for the end of something; what a function raises is logged."""
        for function in self._hooks.get(event, ()):
            try:
                function(*args)
            except (Exception, SystemExit):  # noqa: BLE001 (of the program: what has ended has ended)
                _log.exception("on_%s hook %s failed", event, function)

    def enter(self, stack: ExitStack, ctx: Context) -> None:
        """Enter the middlewares of a sync handler."""
        for middleware in self._sync:
            stack.enter_context(middleware(ctx))

    async def enter_async(self, stack: AsyncExitStack, ctx: Context) -> None:
        """Enter the middlewares of an async handler."""
        for middleware in self._all:
            entered = middleware(ctx)
            if isinstance(entered, AbstractAsyncContextManager):
                await stack.enter_async_context(entered)
            else:
                stack.enter_context(entered)

    def _hook(self, event: Event, function: F) -> F:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"on_{event} takes a plain function, not a coroutine function")
        _check_arguments(function, f"on_{event}", _ARGUMENTS.get(event, ()))
        self._hooks[event].append(function)
        return function


def _check_arguments(function: object, called_as: str, arguments: tuple[str, ...]) -> None:
    """Raise TypeError for a *function* that cannot be called with *arguments*."""
    if not callable(function):
        raise TypeError(f"{called_as} must be a function, not {function!r}")
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # written in C, without a signature
        return
    except TypeError as error:
        call = f"{getattr(function, '__name__', function)}({', '.join(arguments)})"
        raise TypeError(f"{called_as} is called as {call}: {error}") from None
