"""The management API of QuantumLeap's work queue, over the queue of notifications.

Its paths, parameters, headers and shapes; not its bugs: headers are compared as a whole, not as the
beginning of an id; ``pending`` includes what still waits for its first run, in lists and in counts
alike; a delete removes what it names and nothing else; no array ends with a null.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlencode

from pydantic import Field

from headrace.domain.access import Permission
from headrace.domain.errors import Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.limits import AnswerRoom
from headrace.domain.operate import BulkAction
from headrace.domain.task import State, Task, TaskError
from headrace.http.fields import TagValue
from headrace.http.ngsi.notify import QUEUE, SERVICE_PATH, ServicePath, as_tag
from headrace.http.parameters import Cursor, max_retries, task_filter
from headrace.http.rawjson import member_text
from headrace.http.request import JSON, Reply, this_request
from headrace.http.routing import Alias, Answered, Header, Routes
from headrace.runtime.wiring import current_service
from headrace.wire.base import Answer, MaxRetries, raw, to_json
from headrace.wire.tasks import Notification, NotificationInput, NotificationRuntime

routes: Final = Routes("NGSI")
_PATH: Final = "/management/queue/notifications"
_PAGE: Final = 100
_LEFT_MILLIS: Final = 8_000  # of the call's time, when an array is cut short

_Status: TypeAlias = Annotated[
    Literal["pending", "succeeded", "failed"] | None,
    Alias("taskStatus"),
    Field(description="Only those; left out, all."),
]
_Service: TypeAlias = Annotated[TagValue | None, Header("fiware-service")]
_ServicePath: TypeAlias = Annotated[ServicePath | None, Header(SERVICE_PATH)]
_Correlator: TypeAlias = Annotated[TagValue | None, Header("fiware-correlator")]

_WHICH: Final = (
    f"Of the queue `{QUEUE}`: what has moved on to another queue is not shown. A FIWARE header "
    "means the notifications that came with exactly that value; one that is not sent, or empty, "
    "filters nothing, `fiware-servicepath` included."
)
_LINK: Final = {
    "Link": {
        "description": 'With `rel="next"`: there is more; the same request with these parameters.',
        "schema": {"type": "string"},
    }
}


def _array_of(schema: dict[str, Any], description: str) -> dict[int, Any]:
    content = {JSON: {"schema": {"type": "array", "items": schema}}}
    return {200: {"description": description, "headers": _LINK, "content": content}}


_STATUS: Final[dict[State, Literal["pending", "succeeded", "failed"]]] = {
    State.ENQUEUED: "pending",
    State.INFLIGHT: "pending",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "failed",
}


# ------------------------------------------------------------------------------------------ answers


def notification(task: Task, max_retries: MaxRetries) -> Notification:
    """How it is with a notification, and what came in, its data text for text."""
    return Notification(
        runtime=runtime(task, max_retries),
        input=NotificationInput(
            fiware_service=task.tags.get("fiware-service"),
            fiware_service_path=_service_path(task),
            fiware_correlator=task.tags.get("fiware-correlator"),
            payload=raw(_entities(task.payload or "null")),
        ),
    )


def _service_path(task: Task) -> str | None:
    """Return the header as it came: a long one is in the payload as a whole."""
    tag = task.tags.get(SERVICE_PATH)
    whole = member_text(task.payload or "", SERVICE_PATH) if tag else None
    if tag is None or whole is None:
        return tag
    path = json.loads(whole)
    return path if isinstance(path, str) and as_tag(path) == tag else tag


def runtime(task: Task, max_retries: MaxRetries) -> NotificationRuntime:
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


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "GET",
    _PATH,
    Permission.LIST,
    Permission.DETAILS,
    queue=QUEUE,
    responses=_array_of({"$ref": "#/components/schemas/Notification"}, "The notifications."),
    description=_WHICH,
)
def list_notifications(
    status: _Status = None,
    service: _Service = None,
    servicepath: _ServicePath = None,
    correlator: _Correlator = None,
    cursor: Cursor = None,
) -> Answered:
    """List notifications, as QuantumLeap does.

    State after state, by time within each. An array is cut short where it would be over 4 MiB
    or take too long; then the header `Link` leads on.
    """
    where = _where(status, service, servicepath, correlator)
    return _array(where, status, cursor, notification, payload=True)


@routes.add(
    "GET",
    f"{_PATH}/summary",
    Permission.LIST,
    queue=QUEUE,
    responses=_array_of(
        {"$ref": "#/components/schemas/NotificationRuntime"}, "How it is with each."
    ),
    description=_WHICH,
)
def summarize_notifications(
    status: _Status = None,
    service: _Service = None,
    servicepath: _ServicePath = None,
    correlator: _Correlator = None,
    cursor: Cursor = None,
) -> Answered:
    """List how it is with notifications, as QuantumLeap does.

    As the list, without what came in.
    """
    where = _where(status, service, servicepath, correlator)
    return _array(where, status, cursor, runtime, payload=False)


@routes.add(
    "GET",
    f"{_PATH}/count",
    Permission.READ,
    queue=QUEUE,
    responses={
        200: {
            "description": "How many there are.",
            "headers": {
                "X-Count-Exact": {
                    "description": "`false`: too many to look at; there are at least so many.",
                    "schema": {"type": "string", "enum": ["true", "false"]},
                }
            },
            "content": {JSON: {"schema": {"type": "integer", "minimum": 0}}},
        }
    },
    description=_WHICH,
)
def count_notifications(
    status: _Status = None,
    service: _Service = None,
    servicepath: _ServicePath = None,
    correlator: _Correlator = None,
) -> Answered:
    """Count notifications, as QuantumLeap does.

    Those that the list would show, as one number.
    """
    where = _where(status, service, servicepath, correlator)
    counted = current_service().inspect.count(QUEUE, where)
    exact = {"X-Count-Exact": "false" if counted.partial else "true"}
    return Reply(str(counted.count), headers=exact)


@routes.add(
    "DELETE",
    _PATH,
    Permission.OPERATE,
    queue=QUEUE,
    status=204,
    answer="They are gone.",
    description=_WHICH,
)
def delete_notifications(
    status: _Status = None,
    service: _Service = None,
    servicepath: _ServicePath = None,
    correlator: _Correlator = None,
) -> None:
    """Delete notifications, as QuantumLeap does.

    Those that the list would show, running ones too; without `taskStatus` and headers, all. A
    503 says that there may be more than one call could delete: send it again.
    """
    where = _where(status, service, servicepath, correlator)
    done = current_service().bulk.by_filter(QUEUE, BulkAction.DELETE, where)
    if done.cursor is not None:
        raise Unavailable(f"{done.changed} are deleted, there may be more: send the request again")


def _where(
    status: str | None, service: str | None, servicepath: str | None, correlator: str | None
) -> TaskFilter:
    """Return which tasks are meant; two of QuantumLeap's words are aliases of ours."""
    sent = {
        "fiware-service": service,
        SERVICE_PATH: as_tag(servicepath or ""),
        "fiware-correlator": correlator,
    }
    state = "SUCCEEDED" if status == "succeeded" else status
    where = task_filter(state=state, tags={name: value for name, value in sent.items() if value})
    if servicepath and servicepath != sent[SERVICE_PATH]:
        where = replace(where, payload={SERVICE_PATH: servicepath})
    return where


def _array(
    where: TaskFilter,
    status: str | None,
    cursor: str | None,
    show: Callable[[Task, MaxRetries], Answer],
    *,
    payload: bool,
) -> Answered:
    """Answer with all that is meant, page after page, as far as one answer and its time reach."""
    inspect, context = current_service().inspect, this_request().context
    retries, shown = max_retries(), list[str]()
    room = AnswerRoom()
    while True:
        page = inspect.list(QUEUE, where, limit=_PAGE, cursor=cursor, payload=payload)
        texts = [to_json(show(task, retries)) for task in page.tasks]
        if not room.takes(*texts, besides=len(texts)) and shown:
            break  # the cursor still leads to this page
        shown += texts
        cursor = page.cursor
        if cursor is None or context.get_remaining_time_in_millis() < _LEFT_MILLIS:
            break
    headers = {}
    if cursor is not None:
        query = {"cursor": cursor, **({"taskStatus": status} if status else {})}
        headers["Link"] = f'<?{urlencode(query)}>; rel="next"'
    return Reply(f"[{','.join(shown)}]", headers=headers)
