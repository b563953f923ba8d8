"""The local service: store, handlers, HTTP and timers, put together."""

import contextlib
import http.client
import json
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headrace.domain.errors import Unavailable
from headrace.embedded.service import EmbeddedService, service_at
from headrace.embedded.timers import EmbeddedTimers
from headrace.local import DataFolderUnusable, ServiceUnhealthy
from headrace.local.child import SupervisedProcess
from headrace.local.environment import (
    LocalSettings,
    applied,
    dynamodb_client,
    function_environment,
)
from headrace.local.folder import DATABASE_NAME, IN_MEMORY, LAKE_NAME, data_folder, kept_admin_key
from headrace.local.instance import Instance, instance_process
from headrace.local.server import listen
from headrace.local.tables import TableNames, create_tables, load_template
from headrace.local.timers import timers_process
from headrace.runtime.wiring import Settings, serving

_HEALTH_TIMEOUT_SECONDS: Final = 10.0

HEALTH_PATH: Final = "/v1/health"


class Service:
    """A local service, as `settings` say.

    It changes this process's environment while it runs, because that is where the handlers find
    their settings, so there can be one in a process. Start it from a thread that lives as long as
    it should.
    """

    def __init__(self, settings: LocalSettings) -> None:
        """Take the settings."""
        self.settings = settings
        self.url = ""
        self.admin_key = ""
        self.folder = Path()
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
        """Take no more requests, finish those under way, end the timers. May be repeated."""
        self._running.close()

    def _start(self, undo: contextlib.ExitStack) -> None:
        """Start one thing after another; `undo` stops them the other way round."""
        template = load_template()
        self.folder = undo.enter_context(data_folder(self.settings.data_dir))
        self.admin_key = self.settings.admin_key or kept_admin_key(self.folder)
        names = TableNames()
        if self.settings.data_dir != IN_MEMORY:
            (self.folder / LAKE_NAME).mkdir(mode=0o700, exist_ok=True)
        lake = None if self.settings.data_dir == IN_MEMORY else self.folder / LAKE_NAME
        variables = function_environment(
            url=self.settings.dynamodb_url, names=names, admin_key=self.admin_key, lake=lake
        )
        undo.enter_context(applied(variables))
        path = self._file if self.settings.dynamodb_url is None else None
        if self.settings.dynamodb_url is not None:
            create_tables(dynamodb_client(self.settings.dynamodb_url), template, names)
        embedded = self._open(path)
        undo.callback(embedded.close)
        undo.enter_context(serving(embedded.use))
        listening = listen(self.settings.host, self.settings.port)
        undo.callback(listening.close)
        self.url = f"http://{self.settings.at}:{listening.getsockname()[1]}"
        children = [
            undo.enter_context(instance_process(listening, path))
            for _ in range(1, self.settings.processes)
        ]
        instance = Instance(template, listening, self.settings.proxies)
        undo.callback(instance.stop)
        instance.start()
        self._check_health()
        timers = undo.enter_context(self._timers(embedded, path))
        if isinstance(timers, SupervisedProcess):
            children.append(timers)
        # All begin to end at the same time, and each is then waited for.
        undo.callback(instance.stopping.set)
        for child in children:
            undo.callback(child.let_end)

    @property
    def _file(self) -> str:
        return str(self.folder / DATABASE_NAME)

    def _open(self, path: str | None) -> EmbeddedService:
        """Open the file at *path*, or the tables that the environment names.

        Raises:
            DataFolderUnusable: the file cannot be used; the text says why.

        """
        try:
            return service_at(path, Settings.from_env())
        except Unavailable as error:
            raise DataFolderUnusable(error.detail) from error

    def _timers(
        self, embedded: EmbeddedService, path: str | None
    ) -> EmbeddedTimers | SupervisedProcess:
        """Return a block beside which the timers run.

        A service that keeps nothing runs them in this process. It is for tests and trials, where
        the start of another process takes longer than it saves.
        """
        if self.settings.data_dir == IN_MEMORY:
            return EmbeddedTimers(embedded, now=embedded.use.now)
        return timers_process(path)

    def _check_health(self) -> None:
        """Ask the service itself, as any client would.

        Raises:
            ServiceUnhealthy: it does not say that it is well.

        """
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.netloc, timeout=_HEALTH_TIMEOUT_SECONDS)
        try:
            connection.request("GET", HEALTH_PATH)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnhealthy(f"{HEALTH_PATH} does not answer: {error}") from error
        finally:
            connection.close()
        if status != HTTPStatus.OK:
            raise ServiceUnhealthy(_why_unhealthy(status, body))


def _why_unhealthy(status: int, body: bytes) -> str:
    """Say what the answer of a service that is not well says: most often what its file suffers."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, LookupError, TypeError):
        return f"{HEALTH_PATH} answers {status}: see the log above."
    return f"{detail}"
