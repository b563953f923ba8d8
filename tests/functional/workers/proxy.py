"""A TCP proxy that can be cut."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

from tests.waiting import until


class Proxy:
    """Passes connections on to a port of this machine, until they are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self.refused = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Drop all connections, in the middle of whatever they carry, and every new one."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Pass connections on again."""
        self._is_cut = False

    def serve(self) -> None:
        """Accept connections until closed."""
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    self.refused += 1
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {near, far}
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def wait(self) -> None:
        """Wait until all connections are closed."""
        until(lambda: not self._open)

    def close(self) -> None:
        """Drop everything."""
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        """Pass on what either side says, until one has nothing more to say."""
        with near, far, contextlib.suppress(OSError):
            message = True
            while message:
                for source in select.select([near, far], [], [])[0]:
                    data = source.recv(65536)
                    (far if source is near else near).sendall(data)
                    message = message and bool(data)
        with self._lock:
            self._open -= {near, far}


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Run a proxy for the length of a with block."""
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
        proxy.wait()
