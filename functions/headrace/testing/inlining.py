"""Tasks that run in the thread that enqueues them.

A task goes to a service in memory, and runs before ``enqueue`` returns.  So arguments are checked
and travel as JSON, retries follow without waiting, spawned and moved tasks run too, and dedupe keys
have their effect.
"""

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import httpx2 as httpx

from headrace.client.app.app import App
from headrace.client.app.outcomes import type_of
from headrace.client.codec import JsonValue
from headrace.domain.task import State
from headrace.testing.attempts import Attempt, Ran
from headrace.testing.service import MemoryService

_BRINGS_WORK: Final = re.compile(r"/(tasks|run|restart|move|resume|batches|close)$")


class TaskDied(AssertionError):
    """A task in inline mode is dead; ``attempt`` was its last."""

    def __init__(self, attempt: Attempt, why: str) -> None:
        task, report = attempt.task, attempt.report
        error = None if report is None else report.error
        ending = "its lease was lost" if error is None else f"{error.type}: {error.message}"
        lines = [
            f"task {task.id} of {task.queue} is dead ({why}), attempt {task.attempts}: {ending}"
        ]
        super().__init__("\n".join([*lines, error.detail if error else ""]).rstrip())
        self.attempt = attempt


class Inline:
    """Inline mode: its ``service``, and in ``ran`` all attempts so far."""

    def __init__(self, app: App, service: MemoryService, *, raises: bool) -> None:
        self.service = service
        self.ran = Ran()
        self._app, self._raises = app, raises
        self._busy = threading.Lock()
        self._requested = False
        self.transport = httpx.MockTransport(self._respond)

    def result(self, task_id: str | None) -> JsonValue:
        """Return the result of a task as JSON.  Raises NotFound if it is not kept."""
        return self.service.client.get_task(str(task_id)).result

    def _respond(self, request: httpx.Request) -> httpx.Response:
        response = self.service.transport.handle_request(request)
        if (
            response.is_success
            and request.method == "POST"
            and _BRINGS_WORK.search(request.url.path)
        ):
            self._work()
        return response

    def _work(self) -> None:
        """Run waiting tasks; tasks that a handler enqueues run after it, as with any worker."""
        self._requested = True
        ran = Ran()
        while self._requested and self._busy.acquire(blocking=False):
            try:
                self._requested = False
                with _briefly_logged(wanted=self._raises):
                    ran += self.service.work(self._app).run(until_settled=True)
            finally:
                self._busy.release()
        self.ran += ran
        if self._raises:
            self._announce(ran)

    def _announce(self, ran: Ran) -> None:
        last = {attempt.task.id: attempt for attempt in ran}
        tasks = self.service.store.read(last)
        for task_id, attempt in last.items():
            task = tasks.get(task_id)
            if task is not None and task.state is State.DEAD and not task.cancelled:
                raise TaskDied(attempt, str(task.dead_reason))
            if task is None and attempt.report is not None and attempt.report.status == "FAILED":
                raise TaskDied(attempt, "and not kept")


@contextmanager
def _briefly_logged(*, wanted: bool) -> Iterator[None]:
    """Log failures without tracebacks, which TaskDied has."""
    log = logging.getLogger("headrace.task")
    if wanted:
        log.addFilter(_brief)
    try:
        yield
    finally:
        log.removeFilter(_brief)


def _brief(record: logging.LogRecord) -> bool:
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        record.msg, record.args = f"{record.getMessage()}: {type_of(error)}: {error}", ()
        record.exc_info = None
    return True


@contextmanager
def inline(
    app: App, *, raises: bool = True, service: MemoryService | None = None
) -> Iterator[Inline]:
    """Run the tasks of *app* as soon as they are enqueued, in the same thread, to their end.

    Delays and retries move the clock of the service instead of waiting.

    Args:
        app: the app of the task functions.
        raises: whether ``enqueue`` raises TaskDied when a task has failed for good; otherwise
            look at ``ran``.
        service: the service to use; a new one by default.

    """
    with ExitStack() as stack:
        where = service or stack.enter_context(MemoryService())
        line = Inline(app, where, raises=raises)
        stack.enter_context(where.serving(app, transport=line.transport))
        yield line
