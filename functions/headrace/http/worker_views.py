"""Workers as the JSON that goes out."""

from typing import Any

from headrace.http.views import dumps, instant
from headrace.ops.workers import Command, LiveWorker, WorkerPage


def command_json(command: Command | None) -> str:
    """Return the command to a worker."""
    return dumps({"command": command})


def worker_json(worker: LiveWorker) -> str:
    """Return a worker."""
    return dumps(_fields(worker))


def workers_json(page: WorkerPage) -> str:
    """Return a page of workers."""
    return dumps({"workers": [_fields(worker) for worker in page.workers], "cursor": page.cursor})


def _fields(worker: LiveWorker) -> dict[str, Any]:
    sign = worker.sign
    return {
        "name": sign.name,
        "queues": sign.queues,
        "concurrency": sign.concurrency,
        "running": sign.running,
        "version": sign.version,
        "started_at": instant(sign.started_at),
        "seen_at": instant(worker.seen_at),
        "command": worker.command,
    }
