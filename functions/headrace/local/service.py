"""The local service: engine, tables, handlers, HTTP and timers, put together."""

import contextlib
import gc
import http.client
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headrace.client.threads import PeriodicThread, every
from headrace.local import ServiceUnhealthy, stream
from headrace.local.engine import Engine, running_engine
from headrace.local.environment import (
    LocalSettings,
    applied,
    dynamodb_client,
    function_environment,
    payloads_kept,
)
from headrace.local.folder import IN_MEMORY, LAKE_NAME, data_folder, engine_noted, kept_admin_key
from headrace.local.gateway import (
    Gateway,
    Handler,
    InvocationContext,
    load_handler,
    scheduled_event,
)
from headrace.local.pump import Pump, counted, stream_function
from headrace.local.server import listen
from headrace.local.tables import (
    FunctionTimer,
    TableNames,
    Template,
    create_tables,
    load_template,
    routes,
    schedules,
)

_TRIM_SECONDS: Final = 60.0
_HEALTH_TIMEOUT_SECONDS: Final = 10.0
_LAST_RUN_SECONDS: Final = 5.0
"""How long the run of a timer that is under way may hold up the end."""

_log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/v1/health"


class Service:
    """A local service, as `settings` say.

    It changes this process's environment while it runs, because that is where the handlers find
    their settings, so there can be one in a process. Start it from a thread that lives as long as
    it should (see `start_engine`).
    """

    def __init__(self, settings: LocalSettings) -> None:
        """Take the settings."""
        self.settings = settings
        self.url = ""
        self.dynamodb_url = ""
        self.admin_key = ""
        self.folder = Path()
        self.engine: Engine | None = None
        self._pump: Pump | None = None
        self._stopping = threading.Event()
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Start everything, and return when `/v1/health` answers 200.

        Raises:
            LocalServiceError: something is missing or taken; nothing is left running.

        """
        with contextlib.ExitStack() as undo:
            self._start(undo)
            self._running = undo.pop_all()

    def stop(self) -> None:
        """Take no more requests, finish those under way, end timers and engine. May be repeated."""
        self._stopping.set()
        self._running.close()

    def _start(self, undo: contextlib.ExitStack) -> None:
        """Start one thing after another; `undo` stops them the other way round."""
        self._stopping.clear()
        template = load_template()
        self.folder = undo.enter_context(data_folder(self.settings.data_dir))
        self.admin_key = self.settings.admin_key or kept_admin_key(self.folder)
        names = TableNames()
        variables = function_environment(
            url=self._start_engine(undo),
            embedded=self.settings.dynamodb_url is None,
            names=names,
            admin_key=self.admin_key,
            lake=None if self.settings.data_dir == IN_MEMORY else self.folder / LAKE_NAME,
        )
        undo.enter_context(applied(variables))
        create_tables(dynamodb_client(self.dynamodb_url), template, names)
        api, schedule_timers = routes(template), schedules(template)
        handlers: dict[str, Handler] = {}
        self._prepare_pump(undo, template, names)
        timers = self._prepare_timers(undo, schedule_timers, handlers)
        server = listen(
            Gateway(api, handlers, stopping=self._stopping.is_set),
            self.settings.host,
            self.settings.port,
        )
        undo.callback(server.stop)
        self.url = f"http://{self.settings.at}:{server.bind_addr[1]}"
        # Late, because they read the environment, and because it takes the longest.
        functions = {
            *(route.function for route in api),
            *(timer.function for timer in schedule_timers),
        }
        if self._pump is not None:
            functions.add(self._pump.function)
        for function in functions:
            handlers[function.handler] = load_handler(function.handler)
        # What is loaded stays; looking through it for garbage again and again costs each request.
        gc.collect()
        gc.freeze()
        threading.Thread(target=server.serve, name="server", daemon=True).start()
        self._check_health()
        for timer in timers:
            timer.start()
        if self._pump is not None:
            self._pump.start(handlers[self._pump.function.handler], counted)

    def _start_engine(self, undo: contextlib.ExitStack) -> str:
        """Start the embedded engine, unless there is an endpoint; return the endpoint's URL."""
        if self.settings.dynamodb_url is not None:
            self.dynamodb_url = self.settings.dynamodb_url
            return self.dynamodb_url
        self.engine = undo.enter_context(running_engine(self.folder))
        undo.enter_context(engine_noted(self.folder, self.engine.pid, self.engine.url))
        stream.add_index(self.engine.database)
        self.dynamodb_url = self.engine.url
        return self.dynamodb_url

    def _prepare_pump(
        self, undo: contextlib.ExitStack, template: Template, names: TableNames
    ) -> None:
        """Make the pump, unless the engine is not ours: then its stream is others' business."""
        function = stream_function(template)
        self._pump = None
        if self.engine is not None and function is not None:
            stopping = self._stopping.is_set
            self._pump = Pump(
                self.engine.database,
                names.tasks,
                function,
                stopping=stopping,
                whole_images=payloads_kept(),
            )
            undo.callback(self._pump.stop)

    def _prepare_timers(
        self,
        undo: contextlib.ExitStack,
        schedule_timers: Sequence[FunctionTimer],
        handlers: Mapping[str, Handler],
    ) -> list[PeriodicThread]:
        timers = [self._schedule_timer(schedule, handlers) for schedule in schedule_timers]
        if self.engine is not None:
            timers.append(_timer("trim the stream", _TRIM_SECONDS, self._trim))
        for timer in timers:
            undo.callback(timer.join, _LAST_RUN_SECONDS)
            undo.callback(timer.stop)
        return timers

    def _trim(self) -> None:
        if self.engine is not None:
            consumed = self._pump.consumed() if self._pump is not None else {}
            stream.trim(self.engine.database, consumed=consumed, stopping=self._stopping.is_set)

    def _schedule_timer(
        self, schedule: FunctionTimer, handlers: Mapping[str, Handler]
    ) -> PeriodicThread:
        function = schedule.function

        def run() -> None:
            context = InvocationContext(function, self._stopping.is_set)
            handlers[function.handler](scheduled_event(function), context)

        return _timer(function.handler, schedule.interval_seconds, run)

    def _check_health(self) -> None:
        """Ask the service itself, as any client would.

        Raises:
            ServiceUnhealthy: it does not say that it is well.

        """
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.netloc, timeout=_HEALTH_TIMEOUT_SECONDS)
        try:
            connection.request("GET", HEALTH_PATH)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnhealthy(f"{HEALTH_PATH} does not answer: {error}") from error
        finally:
            connection.close()
        if status != HTTPStatus.OK:
            raise ServiceUnhealthy(f"{HEALTH_PATH} answers {status}: see the log above.")


def _timer(name: str, seconds: float, action: Callable[[], object]) -> PeriodicThread:
    """Do *action* at once and then in time, beside the requests."""
    return PeriodicThread(name, every(seconds, action), log=_log, after_fault=seconds)
