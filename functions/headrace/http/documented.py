"""What the routes say of themselves in the OpenAPI document."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from aws_lambda_powertools.event_handler.openapi.params import Path

from headrace.http.fields import Body as BodyModel

Responses: TypeAlias = dict[int, Any]

QueueName: TypeAlias = Annotated[str, Path(description="The name of the queue.")]
TaskName: TypeAlias = Annotated[str, Path(description="The id of the task.")]


def answers(
    status: int, description: str, model: type[BodyModel] | None = None, **more: str
) -> Responses:
    """Return what a route answers when all goes well; *more* are others, as ``also_202="…"``.

    Errors are added for all routes alike (see ``openapi``).
    """
    content: Mapping[str, Any] = {"application/json": {"model": model}} if model else {}
    responses: Responses = {status: {"description": description, "content": content}}
    for name, text in more.items():
        responses[int(name.removeprefix("also_"))] = {"description": text, "content": {}}
    return responses
