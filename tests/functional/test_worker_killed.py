"""Workers that are killed and stopped in the middle of 1,000 tasks.

Every task finishes, none succeeds twice, and stopping costs no attempt.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.client.client import Client
from headrace.client.sending import NewTask
from headrace.wire.tasks import Task
from infra import PROJECT_ROOT
from infra.launch import Launched
from tests.waiting import until

pytestmark = pytest.mark.slow

TASKS = 1000
KEEPALIVE = 3
MOST_HELD = 8 + 50 + 250
"""Tasks of one worker that run, wait for that, and wait for their report to be sent."""


class Scene:
    """A queue of 1,000 tasks, and worker processes that note what they finish."""

    def __init__(self, client: Client, key: str, queue: str, folder: Path) -> None:
        self.client, self.key, self.queue = client, key, queue
        self.notes = folder / "notes"
        self.notes.touch()
        self.processes: list[subprocess.Popen[bytes]] = []
        client.create_queue(
            queue,
            keepalive_timeout_in_seconds=KEEPALIVE,
            retry_strategy={"kind": "fixed", "base_seconds": 0, "max_retries": 20},
        )
        client.enqueue_many(queue, (NewTask(payload=number) for number in range(TASKS)))

    def worker(self) -> "subprocess.Popen[bytes]":
        """Start one."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.functional.workers.counting", self.queue, self.notes],
            cwd=PROJECT_ROOT,
            env={
                **os.environ,
                "HEADRACE_URL": self.client.url,
                "HEADRACE_KEY": self.key,
                "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT / "functions"), str(PROJECT_ROOT)]),
            },
        )
        self.processes.append(process)
        return process

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.notes.read_text().splitlines()]

    def wait_until(self, done: Callable[[], bool]) -> None:
        until(done, 60)

    def wait_for_lines(self, number: int) -> None:
        self.wait_until(lambda: len(self.lines()) >= number)

    def wait_until_finished(self) -> list[Task]:
        """Wait for the end of every task, and check that each succeeded exactly once."""
        self.wait_for_lines(TASKS)
        self.wait_until(lambda: self.client.count_tasks(self.queue, state="pending").count == 0)
        tasks = list(self.client.list_tasks(self.queue, state="SUCCEEDED"))
        assert len(tasks) == len({task.id for task in tasks}) == TASKS
        deliveries = Counter((id, fence) for id, fence, *_ in self.lines())
        assert max(deliveries.values()) == 1
        assert {id for id, _ in deliveries} == {task.id for task in tasks}
        # Successes as the service counted them, each time one was written.
        self.wait_until(lambda: self.successes() >= TASKS)
        assert self.successes() == TASKS
        return tasks

    def successes(self) -> int:
        return sum(point.succeeded or 0 for point in self.client.get_metrics(self.queue).points)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def scene(
    client: Client, service: Launched, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    scene = Scene(client, service.admin_key, request.node.name[:100], tmp_path)
    yield scene
    scene.end()


def test_a_killed_worker_loses_no_task(scene: Scene) -> None:
    victim = scene.worker()
    scene.wait_for_lines(200)
    victim.kill()
    scene.worker()
    scene.worker()

    tasks = scene.wait_until_finished()

    held_when_killed = sum(task.attempts > 1 for task in tasks)
    assert 1 <= held_when_killed <= MOST_HELD
    assert all(error.kind == "lease_expired" for task in tasks for error in task.errors)


def test_a_stopped_worker_costs_no_attempt(scene: Scene) -> None:
    first, second = scene.worker(), scene.worker()
    scene.wait_for_lines(200)
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    scene.wait_for_lines(400)
    second.send_signal(signal.SIGTERM)
    third = scene.worker()
    assert second.wait(20) == 0

    tasks = scene.wait_until_finished()

    third.send_signal(signal.SIGTERM)
    assert third.wait(20) == 0
    assert {task.attempts for task in tasks} == {1}
    assert len(scene.lines()) == TASKS
