"""Where a handler runs: in a thread, in the event loop, or in a child process."""

from collections.abc import Callable

from headrace.client.app.execution import Executor
from headrace.client.worker.handlers import Coroutines, Ended, Started, Threads
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.isolate import Children
from headrace.client.worker.service import Monotonic
from headrace.client.worker.settings import WorkerSettings


class Handlers:
    """Runs what is held, up to the concurrency of each kind at a time."""

    def __init__(
        self,
        app: Executor,
        settings: WorkerSettings,
        started: Started,
        ended: Ended,
        monotonic: Monotonic,
        *,
        app_path: str | None = None,
        fatal: Callable[[Exception], None],
    ) -> None:
        most = settings.concurrency
        self._children: Children | None = None
        if settings.isolate:
            self._children = Children(app, app_path, most, started, ended, monotonic, fatal=fatal)
        self._threads = Threads(app, most, started, ended, monotonic)
        self._coroutines = Coroutines(app, most, started, ended, monotonic)

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as there is room."""
        if self._children is not None:
            self._children.start(held)
        elif held.route.kind == "async":
            self._coroutines.start(held)
        else:
            self._threads.start(held)

    def stop(self) -> None:
        """End threads, event loop and children; nothing may be at work any more."""
        self._threads.stop()
        self._coroutines.stop()
        if self._children is not None:
            self._children.stop()
