"""The service on one machine notices that a client which waits for tasks is gone."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace import AsyncClient, Client
from infra.launch import Launched

KINDS = ["one queue", "many queues", "group lease"]
WAITS = """
import signal, socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(sys.stdin.buffer.read())
print("sent", flush=True)
signal.pause()
"""


def long_poll(service: Launched, client: Client, kind: str, queue: str) -> bytes:
    """Return a request that waits for tasks of *queue*."""
    body: dict[str, Any] = {"wait_seconds": 20, "batch_size": 5}
    path = f"/v1/queues/{queue}/dequeue"
    if kind == "many queues":
        path, body["queues"] = "/v1/dequeue", [queue]
    if kind == "group lease":
        body["lease_id"] = client.open_lease().id
    text = json.dumps(body)
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.admin_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


def answers(service: Launched, times: int = 8) -> None:
    """Let the service answer on new connections, so that it has read what was sent before."""
    for _ in range(times):
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        connection.request("GET", "/v1/health")
        assert connection.getresponse().status == 200
        connection.close()


def assert_next_delivery_is_the_first(client: Client, queue: str) -> None:
    client.enqueue(queue, 1)
    (task,) = client.dequeue(queue, wait_seconds=5).tasks
    assert task.attempts == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_connection_takes_no_task(service: Launched, client: Client, kind: str) -> None:
    queue = f"closed-{kind.replace(' ', '-')}"
    client.create_queue(queue)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", urlsplit(service.url).port or 0)) as waits:
            waits.sendall(long_poll(service, client, kind, queue))
            answers(service)

        assert_next_delivery_is_the_first(client, queue)


def test_a_killed_worker_takes_no_task(service: Launched, client: Client) -> None:
    queue = "killed"
    client.create_queue(queue)
    command = [sys.executable, "-c", WAITS, str(urlsplit(service.url).port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(long_poll(service, client, "one queue", queue))
        worker.stdin.close()
        assert worker.stdout.readline() == b"sent\n"
        answers(service)
        worker.send_signal(signal.SIGKILL)

    assert_next_delivery_is_the_first(client, queue)


@pytest.mark.parametrize("over", ["http", "file"])
def test_a_cancelled_call_of_an_event_loop_takes_no_task(
    service: Launched, client: Client, tmp_path: Path, over: str
) -> None:
    url = service.url if over == "http" else f"file:{tmp_path}/tasks.db"
    key = service.admin_key if over == "http" else None

    async def cancelled_then_next() -> int:
        async with AsyncClient(url, key=key) as loop_client:
            await loop_client.create_queue(f"cancelled-{over}")
            waiting = asyncio.ensure_future(
                loop_client.dequeue(f"cancelled-{over}", wait_seconds=20)
            )
            await loop_client.get_queue(f"cancelled-{over}")
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            await loop_client.enqueue(f"cancelled-{over}", 1)
            (task,) = (await loop_client.dequeue(f"cancelled-{over}", wait_seconds=5)).tasks
            return task.attempts

    assert asyncio.run(cancelled_then_next()) == 1
