"""Keys: make, list, revoke."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Body, Path

from headrace.http import examples, views
from headrace.http.key_bodies import CreateKeyBody
from headrace.http.permissions import principal
from headrace.http.routing import (
    Answered,
    Cursor,
    Limit,
    answers,
    json_answer,
    new_router,
    no_body,
)
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Keys"]


@router.post(
    "/v1/keys",
    summary="Make a key",
    description=(
        "The answer is the only place where its `secret` is ever shown: only a hash of it is kept. "
        "A key may not be for more queues than the one that makes it; its role may be any."
    ),
    tags=_TAGS,
    operation_id="create_key",
    responses=answers(201, "The key, with its secret.", "NewKey"),
)
def create(
    body: Annotated[CreateKeyBody, Body(openapi_examples=examples.CREATE_KEY)],
) -> Answered:
    """Make a key."""
    made = use_cases().keys.create(principal(), body.name, body.role, tuple(body.queues))
    return json_answer(views.new_key_json(made), 201)


@router.get(
    "/v1/keys",
    summary="List keys in the order they were made",
    description=(
        "Those that are not for more queues than the key that asks. The deployment's own key is "
        "not among them."
    ),
    tags=_TAGS,
    operation_id="list_keys",
    responses=answers(200, "A page of keys.", "Keys"),
)
def list_keys(limit: Limit = 50, cursor: Cursor = None) -> Answered:
    """List keys."""
    page = use_cases().keys.list(principal(), limit=limit, cursor=cursor)
    return json_answer(views.keys_json(page))


@router.delete(
    "/v1/keys/<id>",
    summary="Revoke a key",
    description="It stops working within 10 seconds.",
    tags=_TAGS,
    operation_id="revoke_key",
    responses=answers(204, "The key is gone."),
)
def revoke(id: Annotated[str, Path(description="The id of the key.")]) -> Answered:
    """Revoke a key."""
    use_cases().keys.revoke(principal(), id)
    return no_body(204)
