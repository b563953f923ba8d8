"""The management API of QuantumLeap's work queue, over the queue of notifications.

Paths, parameters, headers and answers are those of QuantumLeap, without its bugs: headers are
compared as a whole, not as the start of an id; ``pending`` includes notifications that wait for
their first run, in lists and in counts; a delete removes only what it names; no array ends with a
null.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlencode

from pydantic import Field

from headrace.domain.access import Permission
from headrace.domain.errors import Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.limits import AnswerRoom
from headrace.domain.operate import BulkAction
from headrace.domain.task import State, Task, TaskError
from headrace.http.ngsi.notify import QUEUE, SERVICE_PATH, FiwareHeaders, as_tag
from headrace.http.parameters import Cursor
from headrace.http.rawjson import member_text
from headrace.http.request import JSON, Reply, this_request
from headrace.http.routing import Alias, Routes
from headrace.runtime.wiring import current_service
from headrace.wire.base import Answer, MaxRetries, raw, to_json
from headrace.wire.tasks import Notification, NotificationInput, NotificationRuntime

routes: Final = Routes("NGSI")
_PATH: Final = "/management/queue/notifications"
_PAGE: Final = 100
_LEFT_MILLIS: Final = 8_000  # kept free of the time of the call

_Status: TypeAlias = Annotated[
    Literal["pending", "succeeded", "failed"] | None,
    Alias("taskStatus"),
    Field(description="Only these; without it, all."),
]

_WHICH: Final = (
    f"Notifications that moved from `{QUEUE}` to another queue are not included. A FIWARE "
    "header selects the notifications that came with exactly this value. A missing or empty header "
    "does not filter; this includes `fiware-servicepath`."
)
_LINK: Final = {
    "Link": {
        "description": 'With `rel="next"`: the parameters of the next request.',
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
    """Return the state of a notification, with its data exactly as it came."""
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
    """Return the header as it came; the payload has all of a long one."""
    tag = task.tags.get(SERVICE_PATH)
    whole = member_text(task.payload or "", SERVICE_PATH) if tag else None
    if tag is None or whole is None:
        return tag
    path = json.loads(whole)
    return path if isinstance(path, str) and as_tag(path) == tag else tag


def runtime(task: Task, max_retries: MaxRetries) -> NotificationRuntime:
    """Return the state of a notification."""
    return NotificationRuntime(
        task_id=task.id,
        task_type=task.queue,
        status=_STATUS[task.state],
        retries_left=_retries_left(task, max_retries),
        errors=[_error(error) for error in task.errors],
    )


def _entities(payload: str) -> str:
    """Return the data of a notification. Another payload is shown as an array of one entry."""
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
def list_notifications(sent: FiwareHeaders, status: _Status = None, cursor: Cursor = None) -> Reply:
    """List notifications, as QuantumLeap does.

    By state, and by time within a state. An array ends early if it would be over 4 MiB or take too
    long; then the header `Link` has the parameters of the next request.
    """
    where = _where(status, sent)
    return _array(where, status, cursor, notification, payload=True)


@routes.add(
    "GET",
    f"{_PATH}/summary",
    Permission.LIST,
    queue=QUEUE,
    responses=_array_of({"$ref": "#/components/schemas/NotificationRuntime"}, "The state of each."),
    description=_WHICH,
)
def summarize_notifications(
    sent: FiwareHeaders, status: _Status = None, cursor: Cursor = None
) -> Reply:
    """List the state of notifications, as QuantumLeap does.

    Like the list, without what came in.
    """
    where = _where(status, sent)
    return _array(where, status, cursor, runtime, payload=False)


@routes.add(
    "GET",
    f"{_PATH}/count",
    Permission.READ,
    queue=QUEUE,
    responses={
        200: {
            "description": "The number of notifications.",
            "headers": {
                "X-Count-Exact": {
                    "description": "`false`: there may be more, too many to count.",
                    "schema": {"type": "string", "enum": ["true", "false"]},
                }
            },
            "content": {JSON: {"schema": {"type": "integer", "minimum": 0}}},
        }
    },
    description=_WHICH,
)
def count_notifications(sent: FiwareHeaders, status: _Status = None) -> Reply:
    """Count notifications, as QuantumLeap does.

    The number of notifications that the list would show.
    """
    where = _where(status, sent)
    counted = current_service().inspect.count(QUEUE, where)
    exact = {"X-Count-Exact": "false" if counted.partial else "true"}
    return Reply(str(counted.count), headers=exact)


@routes.add("DELETE", _PATH, Permission.OPERATE, queue=QUEUE, status=204, description=_WHICH)
def delete_notifications(sent: FiwareHeaders, status: _Status = None) -> None:
    """Delete notifications, as QuantumLeap does.

    Deletes the notifications that the list would show, running ones too; without `taskStatus` and
    headers, all. 503: one call could not delete them all, so send it again.
    """
    where = _where(status, sent)
    done = current_service().bulk.by_filter(QUEUE, BulkAction.DELETE, where)
    if done.cursor is not None:
        raise Unavailable(f"{done.changed} are deleted, there may be more: send the request again")


def _where(status: str | None, sent: FiwareHeaders) -> TaskFilter:
    """Return the filter for a request; two of QuantumLeap's states are aliases in Headrace too."""
    state = "SUCCEEDED" if status == "succeeded" else status
    return TaskFilter(
        states=() if state is None else (state,),
        tags=sent.tags(),
        payload={} if sent.long_path is None else {SERVICE_PATH: sent.long_path},
    )


def _array(
    where: TaskFilter,
    status: str | None,
    cursor: str | None,
    show: Callable[[Task, MaxRetries], Answer],
    *,
    payload: bool,
) -> Reply:
    """Return notifications, page by page, until the answer is full or the time is over."""
    inspect, context = current_service().inspect, this_request().context
    retries, shown = current_service().queues.max_retries, list[str]()
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
