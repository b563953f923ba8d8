"""The app: what a program declares, and what a worker runs."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from headrace.client.aio import AsyncClient
from headrace.client.app.checks import Duration, app_name
from headrace.client.app.checks import name as queue_name
from headrace.client.app.clients import AppClients, AppQueues
from headrace.client.app.context import Context
from headrace.client.app.discovery import import_modules, module_names
from headrace.client.app.execution import Timeouts
from headrace.client.app.failing import ErrorRules
from headrace.client.app.function import HowItRuns, RawHandler, TaskFunction
from headrace.client.app.options import CallOptions, HandlerOptions, Options, TaskOptions
from headrace.client.app.outcomes import checked_choice
from headrace.client.app.periodic import AppSchedules, Timing
from headrace.client.app.running import TaskRunner
from headrace.client.app.signature import is_same_function, name_of
from headrace.client.app.sync import AppSync, Declaration
from headrace.client.client import Client
from headrace.client.codec import Codec
from headrace.client.options import named
from headrace.client.queue_fields import QueueFields
from headrace.client.settings import utc_now
from headrace.domain.schedule import MissedTicks
from headrace.domain.task import WhenExpired

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class Declaring(Protocol):
    """The decorator ``@app.task(…)``, for functions with and without a context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[Concatenate[Context, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> TaskFunction[Concatenate[Context, P], R, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...


class App(TaskRunner):
    """The tasks of a program.

    Args:
        client: the client to use; made from *url* and *key* when first needed.
        async_client: the same for event loops.
        url: the address of the service, else ``HEADRACE_URL``.
        key: an API key, else ``HEADRACE_KEY``.
        codec: encodes payloads and results; by default the client's.
        queue: the queue of tasks that name none.
        include: modules with tasks of the app, imported before a worker starts.
        name: the name of the program, a tag of its schedules; ``module:app`` by default.
        create_queues: whether a missing queue is created when it is first needed.
        now: the clock, in tests.

    Raises InvalidRequest for a name that a queue or an app cannot have.

    """

    def __init__(  # noqa: PLR0913 (each but the first a keyword)
        self,
        client: Client | None = None,
        *,
        async_client: AsyncClient | None = None,
        url: str | None = None,
        key: str | None = None,
        codec: Codec | None = None,
        queue: str = "default",
        include: Sequence[str] = (),
        name: str | None = None,
        create_queues: bool = True,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        if isinstance(client, str):
            raise TypeError(f"App takes a client first; its name is App(name={client!r})")
        self.name = None if name is None else app_name(name)
        self._default_queue = queue_name("queue", queue)
        self._queues = AppQueues(create=create_queues)
        self._schedules = AppSchedules()
        self._modules, self._packages = module_names(include), list[str]()
        super().__init__(
            AppClients(
                self._queues,
                client=client,
                async_client=async_client,
                url=url,
                key=key,
                codec=codec,
                now=now,
            )
        )

    def autodiscover(self, *packages: str) -> None:
        """Import every module of *packages* before a worker starts.

        Modules whose names begin with ``_`` are left out, and so is what is in such packages.
        """
        self._packages += packages

    def import_tasks(self) -> None:
        """Import the modules of ``include`` and of ``autodiscover``.

        A worker and the command call this.  Raises ModuleNotFoundError, what a module raises, and
        InvalidRequest for a periodic function that is no task.
        """
        import_modules(self._modules, self._packages)
        self._schedules.check()

    @property
    def folder(self) -> str:
        """The working folder in which the app was made."""
        return self._clients.folder

    def fix_address(self, folder: str) -> None:
        """Take address and key from the environment now, whatever handlers change there later.

        A relative path is one of *folder*.
        """
        self._clients.folder = folder
        self._clients.fix_address()

    @property
    def client(self) -> Client:
        """The client that tasks are enqueued with."""
        return self._clients.client

    @property
    def async_client(self) -> AsyncClient:
        """The same for the running event loop.  Raises RuntimeError outside of one."""
        return self._clients.async_client

    @property
    def codec(self) -> Codec:
        """Encodes payloads and results."""
        return self._clients.codec

    @property
    def queues(self) -> list[str]:
        """The queues that a worker takes tasks from, in order of declaration."""
        return self._queues.worked

    @property
    def tasks(self) -> Mapping[str, TaskFunction[..., Any, ..., Any]]:
        """The task functions by name."""
        return dict(self._functions)

    def close(self) -> None:
        """Close the connections that the app opened."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close those of the running event loop."""
        await self._clients.aclose()

    def using(
        self, client: Client, async_client: AsyncClient, *, now: Callable[[], datetime] = utc_now
    ) -> AbstractContextManager[None]:
        """Use another service and another clock in the block, as tests do."""
        return self._clients.using(client, async_client, now)

    # --------------------------------------------------------------------------------- declaring

    def queue(self, name: str, *, work: bool = False, **settings: Unpack[QueueFields]) -> None:
        """Declare a queue and its settings; ``headrace sync`` updates a queue that exists.

        Also declare queues that only receive moved or spawned tasks, so that a worker creates them.
        A worker takes tasks from queues with a task function or a handler, and from queues with
        *work*, such as the queue of calls with ``options(queue=…)``.

        Raises TypeError for an unknown setting, InvalidRequest for a value out of its limits.
        """
        self._queues.declare(name, settings)
        if work:
            self._queues.work(name)

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[Concatenate[Context, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> TaskFunction[Concatenate[Context, P], R, P, R]: ...
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        **options: Unpack[TaskOptions],
    ) -> Declaring: ...
    @named
    def task(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Any:
        """Make a task of a function: ``@app.task`` or ``@app.task(queue="mail", max_retries=3)``.

        The options are those of `TaskOptions`.

        Raises:
            TypeError: the function cannot be a task, and why.
            ValueError: another task has this name.
            InvalidRequest: an option is out of its limits.

        """
        queue, dedupe_key = options.pop("queue", None), options.pop("dedupe_key", None)
        name, known = _taken(options)
        declared = Options(**cast("CallOptions", options))

        def declare(function: Callable[..., Any]) -> TaskFunction[..., Any, ..., Any]:
            made: TaskFunction[..., Any, ..., Any] = TaskFunction(
                function,
                name=name or name_of(function),
                queue=queue or self._default_queue,
                declared=declared,
                dedupe_key=dedupe_key,
                clients=self._clients,
                **known,
            )
            self._add(made)
            self._schedules.add(made)
            return made

        return declare if function is None else declare(function)

    @named
    def handler(self, *, queue: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Run a function for every task of *queue* whose payload names no task function.

        It takes a ``Context``, the payload, or both; the payload as its type hint wants it.

        Raises TypeError for other parameters, ValueError when the queue has a handler.
        """
        name, known = _taken(options)

        def declare(function: F) -> F:
            made = RawHandler(function, name=name or name_of(function), queue=queue, **known)
            old = self._handlers.get(queue)
            if old is not None and not is_same_function(old.function, function):
                raise ValueError(f"queue {queue} has a handler already, {old.name}")
            self._queues.work(queue)
            self._handlers[queue] = made
            return function

        return declare

    @named
    def periodic(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        missed: MissedTicks = "latest",
        on_expiry: WhenExpired = "dead",
    ) -> Callable[[F], F]:
        """Enqueue a task by a schedule; use it above or below ``@app.task``.

        Args:
            cron: when, as ``"0 8 * * *"``.
            every: or how often.
            timezone: the IANA time zone of *cron*.
            name: the name of the schedule, else that of the task.
            args: the arguments of the call.
            missed: which ticks are enqueued late after the scheduler did not run for up to 24
                hours: ``"skip"``, ``"latest"``, or ``"all"`` (at most 100).
            on_expiry: what happens to a tick that expires before its first delivery: it is
                ``"dead"``, or with ``"drop"`` it is deleted.

        Raises:
            InvalidRequest: not exactly one of cron and every, or arguments that do not fit.
            ValueError: the queue has a schedule of this name.

        """
        beat = Timing(cron, every, timezone, name, dict(args or {}), missed, on_expiry)

        def declare(target: F) -> F:
            self._schedules.declare(target, beat)
            return target

        return declare

    def _add(self, made: TaskFunction[..., Any, ..., Any]) -> None:
        old = self._functions.get(made.name)
        if old is not None and not is_same_function(old.function, made.function):
            raise ValueError(f"another task is named {made.name}: give @app.task(name=…)")
        self._queues.work(made.queue)
        self._schedules.drop(old)
        self._functions[made.name] = made

    # --------------------------------------------------------------------------- in the service

    def ensure_queues(self, client: Client | None = None) -> None:
        """Create the missing queues.

        Raises NotFound naming the command if the key may not, or if ``create_queues`` is False.
        """
        (client or self.client).run(self._queues.ensure())

    def sync_schedules(self, client: Client | None = None) -> None:
        """Create the missing queues, and put the schedules of this app; leave all others alone.

        Raises TypeError for a periodic function that is no task, and errors that name a schedule.
        """
        reached = client or self.client
        self.ensure_queues(reached)
        AppSync(reached, self.declares()).put_schedules()

    def declares(self, path: str | None = None) -> Declaration:
        """Return what a sync applies to the service; *path* is ``module:app``, if it is known."""
        self.import_tasks()
        names = frozenset(filter(None, (self.name, path)))
        queues, schedules = self._queues.settings, self._schedules.declared
        return Declaration(queues, schedules, self.name or path, names)


def _taken(options: Any) -> tuple[str | None, HowItRuns]:  # noqa: ANN401  TaskOptions or HandlerOptions
    """Take the name and the options of a run from *options*; check them.  Raises InvalidRequest."""
    large = checked_choice(options.pop("on_large_result", None))
    rules = ErrorRules.of(options.pop("retry_on", None), options.pop("reject_on", None))
    timeouts = Timeouts.of(options.pop("soft_timeout", None), options.pop("timeout", None))
    return options.pop("name", None), HowItRuns(
        timeouts=timeouts,
        isolate=options.pop("isolate", False),
        on_large_result=large,
        error_rules=rules,
    )
