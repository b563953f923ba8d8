"""One attempt: the handler in its middlewares, and the report of how it ended."""

import asyncio
import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from headrace.client.app.context import Context
from headrace.client.app.execution import Timeouts
from headrace.client.app.failing import AfterFailure
from headrace.client.app.function import Runnable
from headrace.client.app.hooks import AppHooks
from headrace.client.app.outcomes import (
    HardTimeLimit,
    Reject,
    Retry,
    Snooze,
    SoftTimeLimit,
    Stopped,
    UnknownTask,
    failure_of,
    from_the_handler,
    kept_result,
)
from headrace.client.app.signature import cannot_be_imported
from headrace.client.codec import Codec, Unreadable
from headrace.client.current import part_of, within
from headrace.client.sending import Report
from headrace.domain.errors import LeaseLost
from headrace.domain.texts import amount
from headrace.safe_logging import safe_logger

_log: Final = safe_logger("headrace.task")
_NEAR: Final = 3  # names that may have been meant
_cancelled_for: Final[WeakKeyDictionary["asyncio.Task[Any]", BaseException]] = WeakKeyDictionary()


class AttemptRun:
    """One attempt at one task; *found* is what runs it, or why nothing can.

    *spread* draws from [0, 1), for the jitter of backoffs by exception.
    """

    def __init__(
        self,
        ctx: Context,
        found: Runnable | Exception,
        *,
        hooks: AppHooks,
        codec: Codec,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._ctx = ctx
        self._spread = spread
        self._found = found
        self._hooks = hooks
        self._codec = codec

    def run(self) -> Report | None:
        """Run it here, and return the report; None when the lease is lost, or it was cancelled."""
        return within(self._ctx, lambda: self._ended(self._run()))

    async def run_async(self) -> Report | None:
        """Run it in this event loop; return the report, or None as run() does."""
        with part_of(self._ctx):
            return self._ended(await self._run_async())

    def _ended(self, report: Report | None) -> Report | None:
        lost = "CANCELLED" if self._ctx.cancelled else "LOST"
        outcome = lost if report is None else report.status
        self._hooks.call_end_hooks("task_end", self._ctx, outcome)
        return report

    def _run(self) -> Report | None:
        result = None
        try:
            with ExitStack() as around:
                self._hooks.call_hooks("task_start", self._ctx)
                self._hooks.enter(around, self._ctx)
                result = _plain(self._invoke())
        except BaseException as error:  # the process edge: every end is reported
            if isinstance(error, KeyboardInterrupt) and _in_main_thread():
                raise
            return self._failed(error)
        return self._reported(result)

    async def _run_async(self) -> Report | None:
        result = None
        try:
            async with AsyncExitStack() as around:
                self._hooks.call_hooks("task_start", self._ctx)
                await self._hooks.enter_async(around, self._ctx)
                result = self._invoke()
                if inspect.isawaitable(result):
                    result = await result
        except asyncio.CancelledError as error:
            return self._failed(_reason(error))
        except BaseException as error:  # the process edge: every end is reported
            if isinstance(error, KeyboardInterrupt):
                raise
            return self._failed(error)
        return self._reported(result)

    def _invoke(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found.invoke(self._ctx)

    # ------------------------------------------------------------------------------- its report

    def _reported(self, result: object) -> Report | None:
        """Return the report of a handler that ran to its end.

        None if the handler was shown that its lease was over: it may have left its work undone.
        """
        if self._ctx.was_shown_as_lost:
            self._log_lost()
            return None
        try:
            return self._returned(result)
        except Exception as error:  # noqa: BLE001 (of a codec of somebody else's, too)
            about = self._about()
            _log.error("the result of %s cannot be kept: %s", self._called, error, extra=about)
            # Another attempt would have the same result, so the task is not retried.
            failure = failure_of(error, private=self._codec.private)
            return Report.on(self._ctx.task, "FAILED", error=failure, retryable=False)

    def _returned(self, result: object) -> Report:
        move = self._ctx.moved
        spawned = tuple(self._ctx.spawned)
        if move is None:
            return Report.on(self._ctx.task, "SUCCEEDED", result=self._kept(result), spawn=spawned)
        return Report.on(
            self._ctx.task,
            "MOVED",
            to_queue=move.queue,
            payload=move.payload,
            tags=move.tags,
            delay_in_seconds=move.delay_in_seconds,
            spawn=spawned,
        )

    def _kept(self, result: object) -> object:
        choice = None if isinstance(self._found, Exception) else self._found.on_large_result
        value, why = kept_result(result, self._codec, choice)
        if why:
            _log.warning(
                "the result of %s is not kept whole: it %s", self._called, why, extra=self._about()
            )
        return value

    def _log_lost(self) -> None:
        text = "the lease of %s is lost; its attempt counts for nothing"
        _log.warning(text, self._called, extra=self._about())

    def _failed(self, error: BaseException) -> Report | None:
        ctx = self._ctx
        if ctx.cancelled:  # whatever it raises on its way out
            _log.info("%s ends: its task was cancelled", self._called, extra=self._about())
            return None
        if isinstance(error, LeaseLost | HardTimeLimit) and ctx.lost:
            self._log_lost()
            return None
        if isinstance(error, Snooze) or (isinstance(error, Stopped) and ctx.stopping):
            return self._released(error)
        if not error.args or isinstance(error, asyncio.CancelledError):
            error.args = self._explained(error)
        failure = failure_of(error, private=self._codec.private)
        if isinstance(error, Reject) or (isinstance(error, Unreadable) and error is self._found):
            _log.warning("%s is rejected: %s", self._called, error, extra=self._about())
            return Report.on(self._ctx.task, "FAILED", error=failure, retryable=False)
        if isinstance(error, Retry):
            _log.info("%s asks for a retry: %s", self._called, error, extra=self._about())
            return Report.on(
                self._ctx.task, "FAILED", error=failure, delay_in_seconds=error.delay_in_seconds
            )
        after = self._after(error)
        _log.warning(
            "%s failed" if after.retryable else "%s failed, and is not tried again",
            self._called,
            exc_info=(type(error), error, from_the_handler(error)),
            extra=self._about(),
        )
        return Report.on(
            self._ctx.task,
            "FAILED",
            error=failure,
            retryable=after.retryable,
            delay_in_seconds=after.delay_in_seconds,
        )

    def _released(self, error: Snooze | Stopped) -> Report:
        if isinstance(error, Stopped):
            _log.info("%s is released: the worker stops", self._called, extra=self._about())
            return Report.on(self._ctx.task, "RELEASED")
        delay, about = error.delay_in_seconds, self._about()
        _log.info("%s is put off for %g s: %s", self._called, delay, error, extra=about)
        return Report.on(self._ctx.task, "RELEASED", delay_in_seconds=delay)

    def _after(self, error: BaseException) -> AfterFailure:
        if isinstance(self._found, Exception):
            return AfterFailure()
        return self._found.error_rules.after(error, self._ctx.attempt, self._spread())

    @property
    def _called(self) -> str:
        """The function that ran, for the log; the log shows the task's id beside it."""
        if isinstance(self._found, Exception):
            return f"a task of queue {self._ctx.queue}"
        return self._found.name

    def _explained(self, error: BaseException) -> tuple[str, ...]:
        """Return the message of an *error* that has none and that the worker also throws."""
        known = Timeouts() if isinstance(self._found, Exception) else self._found.timeouts
        if isinstance(error, SoftTimeLimit) and known.soft is not None:
            return (f"the soft time limit of {amount(known.soft, 'second')} is over",)
        if isinstance(error, HardTimeLimit) and known.hard is not None:
            return (f"the hard time limit of {amount(known.hard, 'second')} is over",)
        if isinstance(error, asyncio.CancelledError):
            return ("the handler was cancelled by its own code: the worker did not cancel it",)
        if isinstance(error, Stopped):
            return ("the handler raised Stopped, but the worker does not stop",)
        return ()

    def _about(self) -> dict[str, Any]:
        ctx = self._ctx
        return {
            "task_id": ctx.id,
            "queue": ctx.queue,
            "attempt": ctx.attempt,
            "task_name": ctx.name,
        }


def cancel(task: "asyncio.Task[Any]", reason: BaseException) -> None:
    """Cancel the asyncio task of an attempt, and remember why: the latest reason counts."""
    _cancelled_for[task] = reason
    task.cancel(reason)


def unknown(task_name: object, queue: str, known: Iterable[str] = ()) -> UnknownTask:
    """Return the error for a payload that nothing here is meant for; *known* are the tasks here."""
    if task_name is None:
        return UnknownTask(
            'the payload is not a call: it needs {"task": "module.function", "args": {…}}, '
            f'or declare @app.handler(queue="{queue}")'
        )
    return UnknownTask(
        f"no task here is named {task_name!r:.200}: {_remedy(str(task_name), known)}."
        f" If another app enqueues into queue {queue}, give each app its own queue: apps that share"
        " one fail each other's tasks"
    )


def _remedy(name: str, known: Iterable[str]) -> str:
    """Return advice about a name that no task of the app has."""
    last = name.rpartition(".")[2]
    near = sorted(each for each in known if each.rpartition(".")[2] == last)[:_NEAR]
    if near:
        return (
            f"did you mean {' or '.join(near)}? The program that enqueues it must import its"
            " module under the worker's name for it, or name the task with name="
        )
    if near := get_close_matches(name, known, n=_NEAR):
        return (
            f"did you mean {' or '.join(near)}? If not, import the module that declares it where"
            " the worker's app is"
        )
    if cannot_be_imported(name):
        return (
            "its function was typed or piped into a program, which no worker can import: "
            "move it to a module"
        )
    if owner := _function_around(name):
        return (
            f"it is declared inside the function {owner}, which the worker does not call:"
            " declare it outside"
        )
    return (
        "import the module that declares it where the worker's app is, or give the task that name"
    )


def _function_around(name: str) -> str | None:
    """Return the name of the function that declares the task *name*; it need not have run."""
    module = name.rpartition(".")[0]
    while module:
        module, _, first = module.rpartition(".")
        if isinstance(loaded := sys.modules.get(module), ModuleType):
            found = vars(loaded).get(first)
            return f"{module}.{first}" if inspect.isfunction(found) else None
    return None


def _reason(error: asyncio.CancelledError) -> BaseException:
    """Return why the worker cancelled the attempt, or *error* if the worker did not cancel it.

    Only `cancel` counts: code in the handler may cancel its task with any argument, and a library
    may raise another CancelledError in place of the worker's.
    """
    task = asyncio.current_task()
    why = None if task is None else _cancelled_for.get(task)
    if task is None or why is None:
        return error
    if task.cancelling() or (error.args and error.args[0] is why):
        return why.with_traceback(error.__traceback__)
    return error


def _plain(result: object) -> object:
    """Return *result*.  Raises TypeError for what would have to be awaited, and now never is."""
    if result is None or not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError("the handler returned an awaitable: declare it with async def")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
