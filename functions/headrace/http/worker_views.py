"""Workers as the JSON that goes out."""

from typing import Any

from headrace.http.views import dumps, rfc3339
from headrace.ops.operators.workers import Command, LiveWorker, WorkerPage


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
    heartbeat = worker.heartbeat
    return {
        "name": heartbeat.name,
        "queues": heartbeat.queues,
        "concurrency": heartbeat.concurrency,
        "running": heartbeat.running,
        "version": heartbeat.version,
        "started_at": rfc3339(heartbeat.started_at),
        "seen_at": rfc3339(worker.seen_at),
        "command": worker.command,
    }
