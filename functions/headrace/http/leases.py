"""Group leases: one lease over many tasks, extended by one write."""

from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.ids import is_group_id
from headrace.domain.lease import LeaseGroup
from headrace.http.fields import Examples, Keepalive, RequestBody, TextWithin, example
from headrace.http.permissions import principal
from headrace.http.queue_bodies import EmptyBody
from headrace.http.routing import Routes
from headrace.ops.operators import visibility
from headrace.runtime.wiring import current_service
from headrace.wire import tasks as task_wire
from headrace.wire.base import LEFT_OUT, instant

routes: Final = Routes("Leases")

LeaseInPath: TypeAlias = Annotated[str, Field(description="The id of the lease.")]

_LEAST, _MOST = limits.LEASE_NAME_BYTES

LeaseName = Annotated[str, TextWithin(_MOST, _LEAST)]


class LeaseBody(RequestBody):
    """How long the lease lasts, and a name that nobody else may have meanwhile."""

    name: LeaseName | None = Field(
        default=None,
        description="While a lease of this name is open, and for a day after it ended, no other "
        f"one is opened; keys for some queues have names of their own. Up to {_MOST} bytes.",
    )
    keepalive_timeout_in_seconds: Keepalive = Field(
        default=60, description="How long it lasts, and what each extension makes it last again."
    )


OPEN_LEASE: Final[Examples] = {
    "batch": example(
        "For a batch that is extended every 20 seconds",
        {"name": "entities-2026-11-21T08:00", "keepalive_timeout_in_seconds": 60},
    ),
    "nameless": example("For a minute, under no name", {}),
}


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "POST", "/v1/leases", Permission.WORK, status=201, answer="The lease.", examples=OPEN_LEASE
)
def open_lease(body: LeaseBody | None = None) -> task_wire.Leased:
    """Open a lease for many tasks.

    Name it in dequeues (`lease_id`), in whatever queues: their tasks are leased until it ends,
    and one extension is for all of them. Reports name it as the dequeue did. 409 `lease_lost`:
    the name is taken.
    """
    wanted = body or LeaseBody()
    by, length = principal(), wanted.keepalive_timeout_in_seconds
    patterns = () if by.everywhere else by.patterns
    opened = current_service().leases.open(wanted.name, keepalive=length, patterns=patterns)
    return _leased(opened)


@routes.add(
    "POST", "/v1/leases/{id}/extend", Permission.WORK, answer="The lease, with its new end."
)
def extend_lease(id: LeaseInPath, _body: EmptyBody = None) -> task_wire.Leased:
    """Extend a lease.

    It lasts as long again as it was opened for, counted from now, with all that is under it.
    `cancelled` are the tasks under it that were cancelled. One write unit. 409 `lease_lost`: it
    has ended; what ended is never open again. Takes a key that is for all queues it was used
    with.
    """
    return _leased(current_service().leases.extend(_lease_id(id)))


@routes.add("DELETE", "/v1/leases/{id}", Permission.WORK, status=204, answer="The lease is closed.")
def close_lease(id: LeaseInPath) -> None:
    """Close a lease.

    Tasks under it that were not settled are given back, due now, with no attempt used; where
    there are too many for one call, the rest a minute later. Safe to repeat. 409 `lease_lost`:
    it lapsed before. Takes a key that is for all queues it was used with.
    """
    visibility.close_lease(current_service().leases, principal(), _lease_id(id))


def _leased(group: LeaseGroup) -> task_wire.Leased:
    lease = task_wire.Lease(id=group.id, expires_at=instant(group.expires_at))
    cancelled = sorted(group.cancelled) or LEFT_OUT
    return task_wire.Leased(lease=lease, cancelled=cancelled)


def _lease_id(path: str) -> str:
    """Return the lease named in a path.  Raises NotFound for what can be no lease's id."""
    name = unquote(path)
    if not is_group_id(name):
        raise NotFound("there is no such lease; its id is what opening it answered")
    return name
