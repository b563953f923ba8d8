"""Keys: create, list, show, rotate and revoke."""

from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from headrace.domain import limits
from headrace.domain.access import Permission, Role, key_name_fault
from headrace.http.fields import (
    PLAIN,
    Examples,
    Instant,
    RequestBody,
    TextWithin,
    example,
    faultless,
    within,
)
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.request import principal
from headrace.http.routing import Routes
from headrace.ops.operators.keys import IssuedKey
from headrace.ops.search.list_queries import KEYS
from headrace.runtime.wiring import current_service
from headrace.wire import service as service_wire
from headrace.wire.base import LEFT_OUT, instant

routes: Final = Routes("Keys")


KeyName: TypeAlias = Annotated[
    str,
    TextWithin(limits.KEY_NAME_BYTES, 1),
    AfterValidator(faultless(key_name_fault)),
]
Pattern: TypeAlias = Annotated[str, TextWithin(limits.PATTERN_BYTES, 1)]


class CreateKeyBody(RequestBody):
    """A new key: its name, its role and its queues."""

    name: KeyName = Field(
        description="The name in the audit. No two valid keys have the same name."
    )
    role: Annotated[Role, Field(strict=False)]
    queues: Annotated[
        list[Pattern], Field(min_length=limits.PATTERNS[0], max_length=limits.PATTERNS[1])
    ] = Field(
        description="Patterns of queue names: `*` matches any text, and a pattern must match the "
        "whole name. `*` alone is every queue."
    )
    expires_at: Instant | None = Field(
        default=None, description="When the key expires, in the future; null: never."
    )


class RotateKeyBody(RequestBody):
    """How long the previous secret of a key still works."""

    overlap_seconds: Annotated[float, within(limits.OVERLAP_SECONDS), PLAIN] = Field(
        default=0, description="How long the previous secret still works."
    )

    @property
    def overlap(self) -> timedelta:
        """The overlap as a timedelta."""
        return timedelta(seconds=self.overlap_seconds)


CREATE_KEY: Final[Examples] = {
    "producer": example(
        "For sensors, which only enqueue notifications",
        {"name": "sensors", "role": "producer", "queues": ["ngsi.notify"]},
    ),
    "operator": example(
        "For operators of all queues of one kind",
        {"name": "ada", "role": "operator", "queues": ["ngsi.*"]},
    ),
}
ROTATE_KEY: Final[Examples] = {
    "an_hour": example("With an hour to distribute the new secret", {"overlap_seconds": 3600})
}


# ------------------------------------------------------------------------------------------ answers


def new_key_answer(made: IssuedKey) -> service_wire.NewKey:
    """Return the answer about a new or rotated key, with its secret."""
    return service_wire.NewKey.of(made.key, last_used_at=LEFT_OUT, secret=made.secret)


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/keys", Permission.ADMINISTER, status=201, examples=CREATE_KEY)
def create_key(body: CreateKeyBody) -> service_wire.NewKey:
    """Create a key.

    The answer is the only place where its `secret` is shown; the service stores only a hash. A key
    may not be for more queues than the key that creates it, nor expire later. It may have any role.
    409 `key_exists`: a valid key has this name.
    """
    made = current_service().keys.create(
        principal(), body.name, body.role, tuple(body.queues), expires_at=body.expires_at
    )
    return new_key_answer(made)


@routes.add("GET", "/v1/keys", Permission.ADMINISTER, description=keys_of(KEYS))
def list_keys(
    query: ListQueryText = None, limit: Limit = 50, cursor: Cursor = None
) -> service_wire.Keys:
    """List keys in the order in which they were created.

    Shows keys that are for no more queues than the key of the request. The key of the deployment is
    not shown. An expired key is shown for 90 days, or until it is revoked.
    """
    where = asked(KEYS, query)
    page = current_service().keys.list(principal(), where=where, limit=limit, cursor=cursor)
    shown = [service_wire.Key.of(key) for key in page.shown]
    return service_wire.Keys(keys=shown, cursor=page.cursor)


@routes.add("GET", "/v1/keys/{id}", Permission.ADMINISTER)
def get_key(id: Annotated[str, Field(description="The id of the key.")]) -> service_wire.KeyInFull:
    """Show a key, with the schedules and actions that it started.

    `schedules` are the schedules that this key was the last to put, 100 at most. They continue
    after the key is revoked or has expired, until an admin deletes them or puts them again.
    `actions` are the actions that it started, or resumed last, and that have not ended. Revoked and
    expired keys are shown for 90 days.
    """
    found = current_service().keys.traces(principal(), id)
    return service_wire.KeyInFull.of(
        found.key,
        revoked_at=instant(found.revoked_at),
        schedules=[
            service_wire.ScheduleOfKey(queue=queue, name=name) for queue, name in found.schedules
        ],
        actions=list(found.actions),
    )


@routes.add("POST", "/v1/keys/{id}/rotate", Permission.ADMINISTER, examples=ROTATE_KEY)
def rotate_key(
    id: Annotated[str, Field(description="The id of the key.")],
    body: RotateKeyBody | None = None,
) -> service_wire.NewKey:
    """Replace the secret of a key.

    The key keeps its id, name, role, queues and expiry. The answer is the only place where the new
    `secret` is shown. The previous secret works for `overlap_seconds` more, then stops within 10
    seconds. At most two secrets work at a time: the secret before the previous one stops too.
    Rotate again only when it is no longer in use.
    """
    overlap = (body or RotateKeyBody()).overlap
    return new_key_answer(current_service().keys.rotate(principal(), id, overlap=overlap))


@routes.add("DELETE", "/v1/keys/{id}", Permission.ADMINISTER, status=204)
def revoke_key(id: Annotated[str, Field(description="The id of the key.")]) -> None:
    """Revoke a key.

    All of its secrets stop working within 10 seconds.
    """
    current_service().keys.revoke(principal(), id)
