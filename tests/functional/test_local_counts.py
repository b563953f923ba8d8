"""The local service counts each task once, also when it or its timers are killed."""

import os
import signal
from pathlib import Path

import pytest

from headrace import Client, Report
from infra.launch import launched
from tests.processes import processes
from tests.waiting import until


def work(client: Client, count: int) -> None:
    """Enqueue *count* tasks and let them succeed."""
    for _ in range(count):
        client.enqueue("mail", 1)
    done = 0
    while done < count:
        tasks = client.dequeue("mail", batch_size=25).tasks
        client.report("mail", [Report.on(task, "SUCCEEDED") for task in tasks])
        done += len(tasks)


def counted(client: Client, count: int) -> bool:
    """Tell whether the last hour had *count* tasks that were enqueued, started and succeeded."""
    points = client.get_metrics("mail").points
    sums = [
        sum(getattr(point, name) or 0 for point in points)
        for name in ("enqueued", "started", "succeeded", "failed", "dead", "cancelled")
    ]
    return sums == [count, count, count, 0, 0, 0]


@pytest.mark.slow
def test_what_happens_is_counted_where_the_service_or_its_timers_are_killed(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service, Client(service.url, service.admin_key) as client:
        client.create_queue("mail")
        work(client, 100)
        until(lambda: counted(client, 100))
        work(client, 50)
        service.kill()

    with launched(data_dir=tmp_path) as service, Client(service.url, service.admin_key) as client:
        work(client, 50)
        until(lambda: counted(client, 200))
        (timers,) = [pid for pid, one in processes().items() if one.parent == service.pid]
        os.kill(timers, signal.SIGKILL)
        work(client, 25)
        until(lambda: counted(client, 225))
        assert client.get_stats("mail").counts.succeeded == 225
        said = (service.output / "stdout").read_text()
        assert said.count("The process for timers ended with -9; another begins") == 1
