"""The local service: store, application, server and timers."""

import contextlib
import http.client
import json
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aws_lambda_powertools import Logger

from headrace import garbage
from headrace.domain.errors import Unavailable
from headrace.embedded.service import EmbeddedService, service_at
from headrace.embedded.timers import EmbeddedTimers
from headrace.http.app import answer
from headrace.local import DataFolderUnusable, ServiceUnhealthy
from headrace.local.app import LocalApp, load_console
from headrace.local.environment import (
    LocalSettings,
    applied,
    dynamodb_client,
    function_environment,
)
from headrace.local.folder import DATABASE_NAME, IN_MEMORY, LAKE_NAME, data_folder, kept_admin_key
from headrace.local.server import LocalServer, listen
from headrace.local.tables import TableNames, create_tables, table_requests
from headrace.local.timers import TimersProcess
from headrace.runtime.wiring import Settings, serving

_HEALTH_TIMEOUT_SECONDS: Final = 10.0

HEALTH_PATH: Final = "/v1/health"


class Service:
    """A local service, as `settings` say.

    It changes the environment of this process while it runs, because the handlers read their
    settings there.  So a process can have one service.
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
            LocalServiceError: the service cannot start; nothing is left running.

        """
        with contextlib.ExitStack() as undo:
            self._start(undo)
            self._running = undo.pop_all()

    def stop(self) -> None:
        """Stop the server after the requests under way, and the timers.  May be called again."""
        self._running.close()

    def _start(self, undo: contextlib.ExitStack) -> None:
        """Start one part after another; `undo` stops them in the opposite order."""
        settings = self.settings
        self.folder = undo.enter_context(data_folder(settings.data_dir))
        self.admin_key = settings.admin_key or kept_admin_key(self.folder)
        names = TableNames()
        lake = None if settings.data_dir == IN_MEMORY else self.folder / LAKE_NAME
        if lake is not None:
            lake.mkdir(mode=0o700, exist_ok=True)
        variables = function_environment(
            url=settings.dynamodb_url, names=names, admin_key=self.admin_key, lake=lake
        )
        undo.enter_context(applied(variables))
        Logger(service="headrace")  # lines of the logger "headrace", and of those below it, as JSON
        path = None
        if settings.dynamodb_url is None:
            path = str(self.folder / DATABASE_NAME)
        else:
            create_tables(dynamodb_client(settings.dynamodb_url), table_requests(), names)
        embedded = self._open(path)
        undo.callback(embedded.close)
        undo.enter_context(serving(embedded.use))
        listening = listen(settings.host, settings.port)
        undo.callback(listening.close)
        self.url = f"http://{settings.at}:{listening.getsockname()[1]}{settings.root_path}"
        app = LocalApp(
            answer, load_console(), root_path=settings.root_path, proxies=settings.proxies
        )
        garbage.freeze_loaded()
        server = LocalServer(app, listening)
        undo.callback(server.stop)
        server.start()
        self._check_health()
        timers = undo.enter_context(self._timers(embedded, path))
        # The timers and the long polls begin to end at the same time.
        undo.callback(app.stopping.set)
        if isinstance(timers, TimersProcess):
            undo.callback(timers.end)

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
    ) -> EmbeddedTimers | TimersProcess:
        """Return a block in which the timers run.

        A service in memory runs them in this process.  It is for tests and trials, where the start
        of another process takes longer than it saves.
        """
        if self.settings.data_dir == IN_MEMORY:
            return EmbeddedTimers(embedded, now=embedded.use.now)
        return TimersProcess(path)

    def _check_health(self) -> None:
        """Raise ServiceUnhealthy unless the service answers as healthy over HTTP."""
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
    """Return the detail in the answer of an unhealthy service."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, LookupError, TypeError):
        return f"{HEALTH_PATH} answers {status}: see the log above."
    return f"{detail}"
