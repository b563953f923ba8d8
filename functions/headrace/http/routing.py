"""What routes share: parameters, answers, and what they say of themselves in OpenAPI."""

from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from headrace.domain.access import Permission
from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.limits import LIST_PAGE, NAME_RE, TASK_ID_RE
from headrace.domain.retry import DEFAULT_RETRY
from headrace.domain.task import Task
from headrace.http.fields import CURSOR_LENGTH
from headrace.http.permissions import principal
from headrace.http.views import MaxRetries
from headrace.ops.operators import visibility
from headrace.runtime.wiring import use_cases
from headrace.wire.base import Answer, to_json

JSON: Final = "application/json"

Responses: TypeAlias = dict[int, Any]
Answered: TypeAlias = Response[Any]

QueueInPath: TypeAlias = Annotated[str, Path(description="The name of the queue.")]
TaskInPath: TypeAlias = Annotated[str, Path(description="The id of the task.")]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=LIST_PAGE, description="The most on one page.")]
Cursor: TypeAlias = Annotated[
    str | None, Query(max_length=CURSOR_LENGTH, description="As the page before gave it.")
]
Flag: TypeAlias = Annotated[Literal["true", "false"], Query()]
PayloadFlag: TypeAlias = Annotated[
    Literal["true", "false"] | None,
    Query(description="A viewer may not ask for it, and sees neither result nor progress."),
]


def new_router() -> Router:
    """Return a router, for the routes of one noun."""
    return Router()  # type: ignore[no-untyped-call]  # Powertools leaves it so


def answers(status: int, description: str, schema: str | None = None, **more: str) -> Responses:
    """Return the answers of a route when all goes well; *schema* is one of ``openapi``.

    *more* are further answers of the same shape, as in ``also_202="It goes on."``
    Errors are the same for all routes and added by ``openapi``.
    """
    content: Any = {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}} if schema else {}
    responses: Responses = {status: {"description": description, "content": content}}
    for name, text in more.items():
        responses[int(name.removeprefix("also_"))] = {"description": text, "content": content}
    return responses


def json_answer(answer: Answer, status: int = 200) -> Answered:
    """Answer with JSON."""
    return Response(status, JSON, to_json(answer))


def no_body(status: int) -> Answered:
    """Answer with a status alone."""
    return Response(status, None, "")


def queue_name(path: str) -> str:
    """Return the queue named in a path.  Raises NotFound for what can be no queue's name."""
    name = unquote(path)
    if not NAME_RE.fullmatch(name):
        raise NotFound(f"there is no queue {name[:128]}")
    return name


def own_task(path: str) -> Task:
    """Return the task named in a path, as the key may see it.

    Raises NotFound, or Forbidden where the key may not even know that; see ``visibility``.
    """
    return visibility.task(use_cases().tasks, principal(), task_id(path))


def task_id(path: str) -> str:
    """Return the id of the task named in a path.  Raises as own_task() for what can be no id."""
    name = unquote(path)
    if not TASK_ID_RE.fullmatch(name):
        raise visibility.no_task(principal(), name)
    return name


def payload_wanted(value: str | None, *, by_default: bool) -> bool:
    """Tell whether to show payloads.  Raises Forbidden for a key that asks and may not see any."""
    if value == "true":
        principal().require(Permission.DETAILS)
    if value is None:
        return by_default and principal().may(Permission.DETAILS)
    return value == "true"


def max_retries() -> MaxRetries:
    """Return a look-up, for one answer, of the retries that queues grant.

    It never raises: what was done by then, as leasing a task, must be told in any case.
    """
    queues = use_cases().queues

    @cache
    def of(queue: str) -> int:
        found = None
        try:
            found = queues.cached(queue)
        except NotFound:  # deleted meanwhile, and its tasks with it
            pass
        except Unavailable:
            found = queues.remembered(queue)
        return (found.settings.retry_strategy if found else DEFAULT_RETRY).max_retries

    return of
