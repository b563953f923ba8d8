"""What the local service counts of its tasks, all of it and once."""

import http.client
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from headrace.local.launch import Launched, launched
from tests.processes import processes

SOON = 20.0  # seconds until a test gives up


class CountedConnection:
    """One kept connection to a service."""

    def __init__(self, service: Launched) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        self._key = service.admin_key

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status < 300, answer
        return json.loads(answer) if answer else None

    def work(self, queue: str, count: int) -> None:
        """Enqueue *count* tasks and let them succeed."""
        path = f"/v1/queues/{queue}"
        for _ in range(0, count, 25):
            tasks = [{"payload": number} for number in range(25)]
            self.call("POST", f"{path}/tasks", {"tasks": tasks})
        done = 0
        while done < count:
            leased = self.call("POST", f"{path}/dequeue", {"batch_size": 25})["tasks"]
            reports = [
                {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
                for task in leased
            ]
            if reports:
                self.call("POST", f"{path}/reports", {"reports": reports})
            done += len(reports)

    def recorded(self, queue: str, names: Sequence[str], wanted: Sequence[int]) -> list[int]:
        """Return events of the last hour, once they are as *wanted* or time is up."""
        until = time.monotonic() + SOON
        while True:
            points = self.call("GET", f"/v1/queues/{queue}/metrics")["points"]
            found = [sum(point[name] for point in points) for name in names]
            if found == list(wanted) or time.monotonic() > until:
                return found


EVENTS = ("enqueued", "started", "succeeded", "failed", "dead", "cancelled")


@pytest.mark.slow
def test_what_happens_is_counted_where_the_service_or_its_timers_are_killed(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service, CountedConnection(service) as client:
        client.call("POST", "/v1/queues", {"name": "mail"})
        client.work("mail", 200)
        assert client.recorded("mail", EVENTS, [200, 200, 200, 0, 0, 0]) == [200, 200, 200, 0, 0, 0]
        client.work("mail", 100)
        service.kill()

    with launched(data_dir=tmp_path) as service, CountedConnection(service) as client:
        client.work("mail", 50)
        assert client.recorded("mail", EVENTS, [350, 350, 350, 0, 0, 0]) == [350, 350, 350, 0, 0, 0]
        stats = client.call("GET", "/v1/queues/mail/stats")
        exact = client.call("GET", "/v1/queues/mail/stats?exact=true")
        (timers,) = [pid for pid, one in processes().items() if one.parent == service.pid]
        os.kill(timers, signal.SIGKILL)
        client.work("mail", 25)
        assert client.recorded("mail", EVENTS, [375, 375, 375, 0, 0, 0]) == [375, 375, 375, 0, 0, 0]
        said = (service.output / "stdout").read_text()
        assert said.count("The process for timers ended with -9; another begins") == 1

    assert stats["counts"] == {
        "scheduled": 0,
        "ready": 0,
        "inflight": 0,
        "succeeded": 350,
        "dead": 0,
        "cancelled": 0,
    }
    assert exact["counts"] == stats["counts"]
    assert stats["staleness_seconds"] < 60
