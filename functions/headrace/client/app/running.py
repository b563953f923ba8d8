"""The part of an app that a worker needs: which function runs a task, and running it."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from headrace.client.app.attempts import AttemptRun, unknown
from headrace.client.app.clients import AppClients
from headrace.client.app.context import Context
from headrace.client.app.execution import AttemptControl, TaskRoute, Timeouts
from headrace.client.app.failing import ErrorRules
from headrace.client.app.function import TASK, RawHandler, Runnable, TaskFunction, is_call
from headrace.client.app.hooks import AppHooks
from headrace.client.sending import Report
from headrace.domain.limits import RELAY_TASK, RESERVED_PREFIX, reserved_task
from headrace.wire.tasks import LeasedTask

_UNKNOWN: Final = TaskRoute("sync", "unknown")
_ASKED: Final = 200  # characters of a name that may be anything


class TaskRunner(AppHooks):
    """The functions of a program by what they run, and attempts with them."""

    def __init__(self, clients: AppClients) -> None:
        super().__init__()
        self._clients = clients
        self._functions: dict[str, TaskFunction[..., Any, ..., Any]] = {}
        self._handlers: dict[str, RawHandler] = {}
        self._relay = _relay_handler()

    @property
    def isolates(self) -> bool:
        """Whether one of its functions runs in child processes."""
        functions: list[Runnable] = [*self._functions.values(), *self._handlers.values()]
        return any(each.route.isolate for each in functions)

    def route(self, task: LeasedTask) -> TaskRoute:
        """The route of *task*.  Raises nothing: an unknown one fails when it is executed."""
        try:
            return self._found(task).route
        except Exception:  # noqa: BLE001 (raised again in the attempt, which reports it)
            return _unknown(task)

    def execute(self, task: LeasedTask, control: AttemptControl) -> Report | None:
        """Run a task of a sync route and return its final report; None: the lease is lost.

        Raises no Exception.  HardTimeLimit, Stopped or LeaseLost thrown into this thread become
        the report; thrown when the handler has ended already they may come out.  A
        KeyboardInterrupt in the main thread goes through: there a person wants to stop.
        """
        return self._attempt(task, control).run()

    async def execute_async(self, task: LeasedTask, control: AttemptControl) -> Report | None:
        """Run a task of any route in this event loop and return its final report.

        To interrupt it, call `attempts.cancel` with its asyncio task and the reason, such as
        ``HardTimeLimit()`` or ``Stopped()``.  Any other cancellation is a failed attempt.
        """
        return await self._attempt(task, control).run_async()

    def _attempt(self, task: LeasedTask, control: AttemptControl) -> AttemptRun:
        hard_timeout: float | None = None
        name = _UNKNOWN.name
        found: Runnable | Exception
        try:
            found = self._found(task)
            hard_timeout, name = found.timeouts.hard, found.name
        except Exception as error:  # noqa: BLE001 (raised again in the attempt, which reports it)
            found = error
        self._clients.runs_here = True
        now = self._clients.now
        codec = self._clients.codec
        ctx = Context(
            task,
            control,
            codec=codec,
            now=now,
            hard_timeout=hard_timeout,
            name=name,
            clients=self._clients,
        )
        return AttemptRun(ctx, found, hooks=self, codec=codec)

    def _found(self, task: LeasedTask) -> Runnable:
        """Return the function that runs *task*.

        A call of an unknown task never goes to the queue's raw handler, which would take it for
        data.  Raises UnknownTask, or Unreadable for its payload.
        """
        if _is_relay(task):
            return self._relay
        named = _named(task)
        found: Runnable | None
        if isinstance(named, str):
            found = self._functions.get(named)
        else:
            found = self._handlers.get(task.queue)
        if found is None:
            raise unknown(named, task.queue, self._functions)
        return found


def _is_relay(task: LeasedTask) -> bool:
    """Return whether *task* is a relay of a workflow, which the service wrote without a codec.

    The service refuses the name in payloads from outside.  An encoded payload is never a relay,
    whatever it decodes to.
    """
    text = bytes(task.payload_json)
    return RESERVED_PREFIX.encode() in text and reserved_task(text.decode()) == RELAY_TASK


def _relay_handler() -> RawHandler:
    """Return the handler of relays. It does nothing: the service keeps whom a relay stands for."""
    return RawHandler(
        lambda: None,
        name=RELAY_TASK,
        queue="",
        timeouts=Timeouts(),
        isolate=False,
        on_large_result=None,
        error_rules=ErrorRules(),
    )


def _named(task: LeasedTask) -> object:
    """The name of a task function that the payload asks for.  Raises Unreadable."""
    payload = task.payload
    return payload.get(TASK) if is_call(payload) else None


def _unknown(task: LeasedTask) -> TaskRoute:
    """The route of what nothing here runs: it says for what the payload asks, if it does."""
    with suppress(Exception):  # a payload that cannot be read
        named = _named(task)
        if isinstance(named, str):
            return replace(_UNKNOWN, asked=f"{named:.{_ASKED}}")
    return _UNKNOWN
