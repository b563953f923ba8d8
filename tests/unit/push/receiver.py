"""A real receiver on this machine, which answers as a test says."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class ReceivedPush:
    """One request as it came in; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    client: tuple[str, int]


@dataclass
class GivenAnswer:
    """What a receiver answers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Receiver:
    """What came in, and how it is answered."""

    answer: Callable[[ReceivedPush], GivenAnswer]
    url: str = ""
    port: int = 0
    received: list[ReceivedPush] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """A client that goes away is none of ours."""


@contextlib.contextmanager
def receiving(
    answer: Callable[[ReceivedPush], GivenAnswer] = lambda _: GivenAnswer(),
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Receiver]:
    """Run a receiver for the length of a block, over *tls* if there is any."""
    receiver = Receiver(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            came = ReceivedPush(self.path, headers, body, self.client_address)
            receiver.received.append(came)
            given = receiver.answer(came)
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_port
    receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def scripted(*parts: bytes | float) -> Iterator[int]:
    """Answer one connection with *parts*, pausing for each that is a number; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                for part in parts:
                    if isinstance(part, bytes):
                        connection.sendall(part)
                    else:
                        time.sleep(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
