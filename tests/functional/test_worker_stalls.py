"""A worker whose process stands still for longer than its leases last."""

import ctypes
from datetime import UTC, datetime
from pathlib import Path

from headrace import App, Client, Context, Worker
from headrace.wire.tasks import Task
from tests.waiting import until


def is_leased(task: Task) -> bool:
    return task.lease_expires_at is not None and task.lease_expires_at > datetime.now(UTC)


def test_a_handler_that_lets_no_thread_run_succeeds_and_costs_no_attempt(tmp_path: Path) -> None:
    """The service is in the same process, and its reaper and the next dequeue reclaim leases."""
    client = Client(f"file:{tmp_path}/queue.db")
    app = App(client=client)
    app.queue("mail", keepalive_timeout_in_seconds=1)

    @app.task(queue="mail", name="hold")
    def hold(ctx: Context, seconds: float) -> None:
        if seconds:
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # holds the lock of the interpreter
            until(lambda: ctx.lost or is_leased(client.get_task(ctx.id)))

    ids = [str(task.id) for task in hold.enqueue_many({"seconds": n} for n in (2.2, 0, 0, 0))]

    Worker(app, concurrency=1, prefetch=5).run(burst=True)

    tasks = [client.get_task(task_id) for task_id in ids]
    assert [(task.status, task.attempts, task.errors) for task in tasks] == [
        ("SUCCEEDED", 1, [])
    ] * 4
