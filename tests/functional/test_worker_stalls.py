"""A worker whose process stands still for longer than its leases last."""

import ctypes
import time
from pathlib import Path

from headrace import App, Client, Worker


def test_a_handler_that_lets_no_thread_run_succeeds_and_costs_no_attempt(tmp_path: Path) -> None:
    """The service is in the same process, and its reaper and the next dequeue reclaim leases."""
    client = Client(f"file:{tmp_path}/queue.db")
    app = App(client=client)
    app.queue("mail", keepalive_timeout_in_seconds=1)

    @app.task(queue="mail", name="hold")
    def hold(seconds: float) -> None:
        if seconds:
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # holds the lock of the interpreter
            time.sleep(0.3)

    ids = [str(task.id) for task in hold.enqueue_many({"seconds": n} for n in (2.2, 0, 0, 0))]

    Worker(app, concurrency=1, prefetch=5).run(burst=True)

    tasks = [client.get_task(task_id) for task_id in ids]
    assert [(task.status, task.attempts, task.errors) for task in tasks] == [
        ("SUCCEEDED", 1, [])
    ] * 4
