"""What answers requests: the template's handlers behind a gateway, on a socket that listens.

A process of Python runs one thread at a time.  So a service may have several of them, each an
instance, as a Lambda function has: whichever is free takes the next connection, and all that they
share is the store.
"""

import contextlib
import socket
import sys
import threading
from typing import Final

from headrace import garbage
from headrace.domain.errors import Unavailable
from headrace.embedded.service import service_at
from headrace.local.child import (
    SupervisedProcess,
    begin,
    module_command,
    until_stdin_ends,
)
from headrace.local.environment import settings_from
from headrace.local.gateway import (
    Gateway,
    Handler,
    ShortWay,
    load_handler,
    load_short_ways,
)
from headrace.local.proxies import NO_PROXIES, TrustedProxies
from headrace.local.server import ApiServer
from headrace.local.tables import Template, load_template, routes
from headrace.runtime.wiring import Settings, current_service, serving
from headrace.safe_logging import safe_logger

_log: Final = safe_logger("headrace.local")


class Instance:
    """Answers what comes to *listening*, once it is started, by the routes of *template*."""

    def __init__(
        self,
        template: Template,
        listening: socket.socket,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> None:
        self.handlers: dict[str, Handler] = {}
        self.stopping = threading.Event()
        self._routes = routes(template)
        self._short_ways: dict[str, ShortWay] = {}
        gateway = Gateway(
            self._routes,
            self.handlers,
            short_ways=self._short_ways,
            stopping=self.stopping.is_set,
            proxies=proxies,
            verify_key=lambda key: current_service().keys.verify(key, note_use=False),
        )
        self._server = ApiServer(gateway, listening)

    def start(self) -> None:
        """Load the handlers and answer.

        They read the environment, so it must be as they need it; and to load them takes longest.
        """
        for name in {route.function.handler for route in self._routes}:
            self.handlers[name] = load_handler(name)
        self._short_ways |= load_short_ways()
        garbage.leave_loaded()
        threading.Thread(target=self._server.serve, name="server", daemon=True).start()

    def stop(self) -> None:
        """Take no more requests, and finish those under way.  May be repeated."""
        self.stopping.set()
        self._server.stop()


def instance_process(listening: socket.socket, path: str | None) -> SupervisedProcess:
    """Return a process that answers on *listening* too.

    It opens the file at *path*; None: the DynamoDB that the environment names.
    """
    number = listening.fileno()
    command = module_command("headrace.local.instance", str(number), *([path] if path else []))
    return SupervisedProcess("requests", command, log=_log, inherits=[number])


def main(number: int, path: str | None = None) -> int:
    """Answer on the socket that is open as *number* until stdin ends; return the exit code."""
    begin()
    with contextlib.ExitStack() as undo:
        listening = undo.enter_context(socket.socket(fileno=number))
        try:
            embedded = service_at(path, Settings.from_env())
        except Unavailable as error:
            _log.error("This process cannot answer: %s", error.detail)
            return 1
        undo.callback(embedded.close)
        undo.enter_context(serving(embedded.use))
        instance = Instance(load_template(), listening, settings_from().proxies)
        undo.callback(instance.stop)
        instance.start()
        until_stdin_ends()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
