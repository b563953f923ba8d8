"""The results of enqueueing a function.

With them a program waits for the result, follows the progress, or cancels the task.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from headrace.client.aio import AsyncClient
from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.calls.tasks import not_enqueued
from headrace.client.calls.waiting import if_kept
from headrace.client.client import Client
from headrace.client.options import no_attribute
from headrace.wire.base import JsonValue
from headrace.wire.tasks import CancelledTask, Enqueued, Task

T_co = TypeVar("T_co", covariant=True)
"""What the function returns."""

_ANY_TIME = (0, math.inf)
_ELSEWHERE: Final = {
    **dict.fromkeys(("get", "join", "wait"), "say {}.result(timeout=…)"),
    **dict.fromkeys(("abort", "revoke", "terminate"), "say {}.cancel()"),
    **dict.fromkeys(
        ("failed", "ready", "state", "status", "successful"), "say client.get_task(task.id).state"
    ),
}
"""What other task queues call it, and what to write here."""


class _WithClient(Enqueued, frozen=True, kw_only=True, dict=True):
    """The outcome of an entry, with the client that sent it."""

    @classmethod
    def by(cls, client: object, made: Enqueued, result_of: Callable[[Task], Any]) -> Self:
        """Return the outcome *made* of a call by *client*.

        *result_of* reads the function's result from the task when it has ended.
        """
        held = cls(**{name: getattr(made, name) for name in made.__struct_fields__})
        held.__dict__.update(client=client, result_of=result_of)
        return held

    if not TYPE_CHECKING:  # type checkers report these mistakes

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (always raises)
            """Raise AttributeError, which knows what other task queues call it."""
            awaited = "await task" if isinstance(self, AsyncEnqueuedTask) else "task"
            raise no_attribute(self, name, _ELSEWHERE, awaited)

        def __await__(self) -> Any:  # noqa: ANN401 (always raises)
            """Raise TypeError, which names the method for event loops."""
            raise TypeError(
                "the task is enqueued, and there is nothing to await: in an event loop say"
                " await ….aenqueue(…) instead of await ….enqueue(…)"
            )

    def _result_of(self, task: Task) -> Any:  # noqa: ANN401  as the function returns
        return self.__dict__["result_of"](task)

    def _task_id(self) -> str:
        """The id of the task.  Raises NotEnqueued for an entry that is INVALID."""
        if self.id is None or self.outcome == "INVALID":
            raise not_enqueued({"task": self.detail or ""}, [self])
        return self.id


class EnqueuedTask(_WithClient, Generic[T_co], frozen=True, kw_only=True, dict=True):
    """The outcome of an enqueued call, and its task.

    After DUPLICATE and EXISTING it is the existing task.
    """

    @property
    def _client(self) -> Client:
        client: Client = self.__dict__["client"]
        return client

    def result(self, timeout: Duration | None = None) -> T_co:
        """Wait for the end of the task and return its result, as the function's type hint says.

        It is plain JSON if there is no hint, if the task has moved to another queue, and if a
        result was too large and is cut or dropped.
        *timeout* is in seconds, or a timedelta; None waits without end.
        Raises TaskDead (``error.task`` has the errors), TimeoutError, NotFound for a task that was
        deleted or is not kept, and Unreadable for a result that does not fit the hint.
        """
        task_id, seconds = self._task_id(), checks.optional("timeout", timeout, _ANY_TIME)
        with if_kept(task_id):
            ended = self._client.wait(task_id, timeout=seconds, payload=False)
            result: T_co = self._result_of(ended)
            return result

    def updates(self, timeout: Duration | None = None) -> Iterator[JsonValue]:
        """Yield the progress of the task until it has ended.

        ``result()`` shows whether the task succeeded.  Raises TimeoutError and NotFound.
        """
        task_id, seconds = self._task_id(), checks.optional("timeout", timeout, _ANY_TIME)
        with if_kept(task_id):
            yield from self._client.updates(task_id, timeout=seconds)

    def cancel(self, *, reason: str | None = None) -> CancelledTask:
        """Cancel the task, with a *reason* for the audit.  Raises Finished and NotFound."""
        return self._client.cancel_task(self._task_id(), reason=reason)


class AsyncEnqueuedTask(_WithClient, Generic[T_co], frozen=True, kw_only=True, dict=True):
    """The same for the event loop of the call."""

    @property
    def _client(self) -> AsyncClient:
        client: AsyncClient = self.__dict__["client"]
        return client

    async def result(self, timeout: Duration | None = None) -> T_co:  # noqa: ASYNC109  as the synchronous twin
        """Wait for the end of the task and return its result; as that of EnqueuedTask."""
        task_id, seconds = self._task_id(), checks.optional("timeout", timeout, _ANY_TIME)
        with if_kept(task_id):
            ended = await self._client.wait(task_id, timeout=seconds, payload=False)
            result: T_co = self._result_of(ended)
            return result

    async def updates(self, timeout: Duration | None = None) -> AsyncIterator[JsonValue]:  # noqa: ASYNC109  as in result()
        """Yield the progress of the task until it has ended; as that of EnqueuedTask."""
        task_id, seconds = self._task_id(), checks.optional("timeout", timeout, _ANY_TIME)
        with if_kept(task_id):
            async for progress in self._client.updates(task_id, timeout=seconds):
                yield progress

    async def cancel(self, *, reason: str | None = None) -> CancelledTask:
        """Cancel the task, with a *reason* for the audit.  Raises Finished and NotFound."""
        return await self._client.cancel_task(self._task_id(), reason=reason)
