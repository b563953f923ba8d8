"""Keys: make, list, rotate, revoke."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Body, Path

from headrace.http import examples, views
from headrace.http.key_bodies import CreateKeyBody, RotateKeyBody
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
        "A key may not be for more queues than the one that makes it; its role may be any. "
        "409 `key_exists`: a living key has this name."
    ),
    tags=_TAGS,
    operation_id="create_key",
    responses=answers(201, "The key, with its secret.", "NewKey"),
)
def create(
    body: Annotated[CreateKeyBody, Body(openapi_examples=examples.CREATE_KEY)],
) -> Answered:
    """Make a key."""
    made = use_cases().keys.create(
        principal(), body.name, body.role, tuple(body.queues), expires_at=body.expires_at
    )
    return json_answer(views.new_key(made), 201)


@router.get(
    "/v1/keys",
    summary="List keys in the order they were made",
    description=(
        "Those that are not for more queues than the key that asks. The deployment's own key is "
        "not among them. One that has expired stays for 90 days, or until it is revoked."
    ),
    tags=_TAGS,
    operation_id="list_keys",
    responses=answers(200, "A page of keys.", "Keys"),
)
def list_keys(limit: Limit = 50, cursor: Cursor = None) -> Answered:
    """List keys."""
    page = use_cases().keys.list(principal(), limit=limit, cursor=cursor)
    return json_answer(views.keys(page))


@router.post(
    "/v1/keys/<id>/rotate",
    summary="Give a key another secret",
    description=(
        "It keeps its id, name, role, queues and expiry. The answer is the only place where the "
        "new `secret` is ever shown. The one before works for `overlap_seconds` more, then stops "
        "within 10 seconds. At most two work at a time: one from before that stops too, so rotate "
        "again only when nobody uses it any more."
    ),
    tags=_TAGS,
    operation_id="rotate_key",
    responses=answers(200, "The key, with its new secret.", "NewKey"),
)
def rotate(
    id: Annotated[str, Path(description="The id of the key.")],
    body: Annotated[RotateKeyBody | None, Body(openapi_examples=examples.ROTATE_KEY)] = None,
) -> Answered:
    """Rotate a key."""
    overlap = (body or RotateKeyBody()).overlap
    return json_answer(views.new_key(use_cases().keys.rotate(principal(), id, overlap=overlap)))


@router.delete(
    "/v1/keys/<id>",
    summary="Revoke a key",
    description="It stops working within 10 seconds, whatever secret of it is presented.",
    tags=_TAGS,
    operation_id="revoke_key",
    responses=answers(204, "The key is gone."),
)
def revoke(id: Annotated[str, Path(description="The id of the key.")]) -> Answered:
    """Revoke a key."""
    use_cases().keys.revoke(principal(), id)
    return no_body(204)
