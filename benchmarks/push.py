"""`python -m benchmarks.push`: how many tasks a second go to a receiver on this machine.

The receiver is a process of its own, as small as can be; the tasks are there before it begins.
"""

import argparse
import json
import multiprocessing
import resource
import selectors
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace.domain.plan import TaskSpec
from headrace.domain.push import PushHosts, PushRules, Target
from headrace.domain.queue_settings import QueueSettings
from headrace.embedded.service import service_on
from headrace.runtime.pushing import dispatcher_of
from headrace.runtime.wiring import Settings

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_HEAD_END: Final = b"\r\n\r\n"


def receive(listener: socket.socket) -> None:
    """Answer whatever comes, on any number of connections."""
    listener.setblocking(False)  # noqa: FBT003  the library's own
    looking = selectors.DefaultSelector()
    looking.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in looking.select():
            if key.data is None:
                with suppress(BlockingIOError):
                    connection, _ = listener.accept()
                    connection.setblocking(False)  # noqa: FBT003  likewise
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    looking.register(connection, selectors.EVENT_READ, bytearray())
                continue
            _serve(looking, key)


def _serve(looking: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    connection, came = key.fileobj, key.data
    assert isinstance(connection, socket.socket)
    part = connection.recv(65_536)
    if not part:
        looking.unregister(connection)
        connection.close()
        return
    came += part
    while (end := came.find(_HEAD_END)) >= 0:
        head = bytes(came[:end]).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(came) < end + len(_HEAD_END) + length:
            return
        del came[: end + len(_HEAD_END) + length]
        connection.sendall(_ANSWER)


def main(arguments: list[str]) -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=50)
    given = parser.parse_args(arguments)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    receiver = multiprocessing.Process(target=receive, args=(listener,), daemon=True)
    receiver.start()
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(
            Settings(admin_key="k", poll_after_seconds=0.02, settings_ttl_seconds=1),
            push=PushRules(PushHosts.parse("127.0.0.1")),
        )
        service = service_on(str(Path(folder) / "tasks.db"), settings)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        target = Target(url=url, max_concurrency=given.concurrency)
        service.use.queues.create("hooks", QueueSettings(target=target))
        for start in range(0, given.tasks, 25):
            specs = [TaskSpec(f'{{"n": {start + n}}}') for n in range(25)]
            service.use.tasks.enqueue("hooks", specs)
        loop = dispatcher_of(service.use, "hooks", 0)
        assert loop is not None
        loop.linger = 0.0
        before, began = _cpu(), time.monotonic()
        sent = loop.run()
        seconds, cpu = time.monotonic() - began, _cpu() - before
        service.close()
    receiver.terminate()
    receiver.join()
    print(
        json.dumps(
            {
                "tasks": sent,
                "concurrency": given.concurrency,
                "per_second": round(sent / seconds),
                "cpu_seconds_per_1000": round(cpu / sent * 1000, 3),
                "of_the_receiver": round(_cpu(resource.RUSAGE_CHILDREN) / sent * 1000, 3),
            }
        )
    )
    return 0


def _cpu(whose: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
