"""Group leases: one lease over many tasks, extended by one write."""

from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote

from aws_lambda_powertools.event_handler.openapi.params import Body, Path

from headrace.domain.errors import NotFound
from headrace.domain.lease import Group, is_group_id
from headrace.http import examples, views
from headrace.http.lease_bodies import LeaseBody
from headrace.http.permissions import principal
from headrace.http.queue_bodies import ResumeBody
from headrace.http.routing import Answered, answers, json_answer, new_router, no_body
from headrace.ops.operators import visibility
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Leases"]

LeaseInPath: TypeAlias = Annotated[str, Path(description="The id of the lease.")]


@router.post(
    "/v1/leases",
    summary="Open a lease for many tasks",
    description=(
        "Name it in dequeues (`lease_id`), in whatever queues: their tasks are leased until it "
        "ends, and one extension is for all of them. Reports name it as the dequeue did. "
        "409 `lease_lost`: the name is taken."
    ),
    tags=_TAGS,
    operation_id="open_lease",
    responses=answers(201, "The lease.", "Leased"),
)
def open_lease(
    body: Annotated[LeaseBody | None, Body(openapi_examples=examples.OPEN_LEASE)] = None,
) -> Answered:
    """Open a group lease."""
    wanted = body or LeaseBody()
    leases = use_cases().leases
    return _shown(leases.open(wanted.name, keepalive=wanted.keepalive_timeout_in_seconds), 201)


@router.post(
    "/v1/leases/<id>/extend",
    summary="Extend a lease",
    description=(
        "It lasts as long again as it was opened for, counted from now, with all that is under "
        "it. One write unit. 409 `lease_lost`: it has ended; what ended is never open again."
    ),
    tags=_TAGS,
    operation_id="extend_lease",
    responses=answers(200, "The lease, with its new end.", "Leased"),
)
def extend(
    id: LeaseInPath,
    body: Annotated[ResumeBody | None, Body()] = None,  # noqa: ARG001  it may only be empty
) -> Answered:
    """Extend a group lease."""
    return _shown(use_cases().leases.extend(_lease_id(id)))


@router.delete(
    "/v1/leases/<id>",
    summary="Close a lease",
    description=(
        "Tasks under it that were not settled are given back, due now, with no attempt used; "
        "where there are too many for one call, the rest a minute later. Safe to repeat. "
        "409 `lease_lost`: it lapsed before. Takes a key that is for all queues it was used with."
    ),
    tags=_TAGS,
    operation_id="close_lease",
    responses=answers(204, "The lease is closed."),
)
def close(id: LeaseInPath) -> Answered:
    """Close a group lease."""
    visibility.close_lease(use_cases().leases, principal(), _lease_id(id))
    return no_body(204)


def _shown(group: Group, status: int = 200) -> Answered:
    return json_answer(views.group_lease(group), status)


def _lease_id(path: str) -> str:
    """Return the lease named in a path.  Raises NotFound for what can be no lease's id."""
    name = unquote(path)
    if not is_group_id(name):
        raise NotFound("there is no such lease; its id is what opening it answered")
    return name
