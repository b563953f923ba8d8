"""Notifications in the queue, in the shapes of QuantumLeap's management API."""

from typing import Final, Literal

from headrace.domain.task import State, Task, TaskError
from headrace.http.rawjson import member_text
from headrace.http.views import MaxRetries
from headrace.wire.base import raw
from headrace.wire.ngsi import Notification, NotificationInput, NotificationRuntime

_STATUS: Final[dict[State, Literal["pending", "succeeded", "failed"]]] = {
    State.ENQUEUED: "pending",
    State.INFLIGHT: "pending",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "failed",
}


def notification(task: Task, *, max_retries: MaxRetries) -> Notification:
    """How it is with a notification, and what came in, its data text for text."""
    return Notification(
        runtime=runtime(task, max_retries=max_retries),
        input=NotificationInput(
            fiware_service=task.tags.get("fiware-service"),
            fiware_service_path=task.tags.get("fiware-servicepath"),
            fiware_correlator=task.tags.get("fiware-correlator"),
            payload=raw(_entities(task.payload or "null")),
        ),
    )


def runtime(task: Task, *, max_retries: MaxRetries) -> NotificationRuntime:
    """How it is with a notification."""
    return NotificationRuntime(
        task_id=task.id,
        task_type=task.queue,
        status=_STATUS[task.state],
        retries_left=_retries_left(task, max_retries),
        errors=[_error(error) for error in task.errors],
    )


def _entities(payload: str) -> str:
    """Return the notification's data; what is no notification is shown as the one thing it is."""
    data = member_text(payload, "data")
    for text in (data, payload):
        if text is not None and text.startswith("["):
            return text
    return f"[{payload}]"


def _retries_left(task: Task, max_retries: MaxRetries) -> int | None:
    most = task.retry.max_retries if task.retry is not None else max_retries(task.queue)
    if most == 0:
        return None
    if task.state is State.DEAD:
        return 0
    used = task.attempts if task.state is State.ENQUEUED else task.attempts - 1
    return max(0, most - used)


def _error(error: TaskError) -> str:
    return ": ".join(filter(None, (error.type, error.message))) or error.kind
