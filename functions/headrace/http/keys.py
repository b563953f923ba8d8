"""Keys: make, list, rotate, revoke."""

from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from headrace.domain import limits
from headrace.domain.access import Permission, Role, key_name_fault
from headrace.http.fields import (
    Examples,
    Instant,
    Overlap,
    RequestBody,
    TextWithin,
    example,
    faultless,
)
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.request import Reply, principal
from headrace.http.routing import Answered, Routes
from headrace.ops.operators.keys import IssuedKey
from headrace.ops.operators.list_queries import KEYS
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
    """A new key: what it is called, what it is for, and where."""

    name: KeyName = Field(
        description="For people; the audit knows the key by it, so no two living keys have the "
        "same."
    )
    role: Annotated[Role, Field(strict=False)]
    queues: Annotated[
        list[Pattern], Field(min_length=limits.PATTERNS[0], max_length=limits.PATTERNS[1])
    ] = Field(
        description="Patterns of queues: `*` is any text, everything else is itself, and the whole "
        "name must match. `*` alone is every queue."
    )
    expires_at: Instant | None = Field(
        default=None, description="When it stops working, in the future; null: never."
    )


class RotateKeyBody(RequestBody):
    """How a key gets another secret."""

    overlap_seconds: Overlap = Field(
        default=0, description="How long the secret before works beside the new one."
    )

    @property
    def overlap(self) -> timedelta:
        """The same, as a length of time."""
        return timedelta(seconds=self.overlap_seconds)


CREATE_KEY: Final[Examples] = {
    "producer": example(
        "For sensors: they only put notifications in",
        {"name": "sensors", "role": "producer", "queues": ["ngsi.notify"]},
    ),
    "operator": example(
        "For people who look after all queues of one kind",
        {"name": "ada", "role": "operator", "queues": ["ngsi.*"]},
    ),
}
ROTATE_KEY: Final[Examples] = {
    "an_hour": example("With an hour to hand it out", {"overlap_seconds": 3600})
}


# ------------------------------------------------------------------------------------------ answers


def new_key_answer(made: IssuedKey) -> service_wire.NewKey:
    """A key just made or rotated, with its secret."""
    return service_wire.NewKey.of(made.key, last_used_at=LEFT_OUT, secret=made.secret)


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "POST",
    "/v1/keys",
    Permission.ADMINISTER,
    status=201,
    answer="The key, with its secret.",
    examples=CREATE_KEY,
)
def create_key(body: CreateKeyBody) -> service_wire.NewKey:
    """Make a key.

    The answer is the only place where its `secret` is ever shown: only a hash of it is kept. A
    key may not be for more queues than the one that makes it, nor live longer; its role may be
    any. 409 `key_exists`: a living key has this name.
    """
    made = current_service().keys.create(
        principal(), body.name, body.role, tuple(body.queues), expires_at=body.expires_at
    )
    return new_key_answer(made)


@routes.add(
    "GET", "/v1/keys", Permission.ADMINISTER, answer="A page of keys.", description=keys_of(KEYS)
)
def list_keys(
    query: ListQueryText = None, limit: Limit = 50, cursor: Cursor = None
) -> service_wire.Keys:
    """List keys in the order they were made.

    Those that are not for more queues than the key that asks. The deployment's own key is not
    among them. One that has expired stays for 90 days, or until it is revoked.
    """
    where = asked(KEYS, query)
    page = current_service().keys.list(principal(), where=where, limit=limit, cursor=cursor)
    shown = [service_wire.Key.of(key) for key in page.shown]
    return service_wire.Keys(keys=shown, cursor=page.cursor)


@routes.add("GET", "/v1/keys/{id}", Permission.ADMINISTER, answer="The key.", schema="KeyInFull")
def get_key(id: Annotated[str, Field(description="The id of the key.")]) -> Answered:
    """Show a key, and what goes on that was begun with it.

    `schedules` are those that the key was the last to put, 100 at most: they go on when the key
    is revoked or has expired, until an admin deletes them or puts them again. `actions` are
    those that it began, or resumed last, and that have not ended. Revoked and expired keys are
    shown for 90 days.
    """
    found = current_service().keys.traces(principal(), id)
    return Reply(
        service_wire.KeyInFull.of(
            found.key,
            revoked_at=instant(found.revoked_at),
            schedules=[
                service_wire.ScheduleOfKey(queue=queue, name=name)
                for queue, name in found.schedules
            ],
            actions=list(found.actions),
        )
    )


@routes.add(
    "POST",
    "/v1/keys/{id}/rotate",
    Permission.ADMINISTER,
    answer="The key, with its new secret.",
    examples=ROTATE_KEY,
)
def rotate_key(
    id: Annotated[str, Field(description="The id of the key.")],
    body: RotateKeyBody | None = None,
) -> service_wire.NewKey:
    """Give a key another secret.

    It keeps its id, name, role, queues and expiry. The answer is the only place where the new
    `secret` is ever shown. The one before works for `overlap_seconds` more, then stops within
    10 seconds. At most two work at a time: one from before that stops too, so rotate again only
    when nobody uses it any more.
    """
    overlap = (body or RotateKeyBody()).overlap
    return new_key_answer(current_service().keys.rotate(principal(), id, overlap=overlap))


@routes.add("DELETE", "/v1/keys/{id}", Permission.ADMINISTER, status=204, answer="The key is gone.")
def revoke_key(id: Annotated[str, Field(description="The id of the key.")]) -> None:
    """Revoke a key.

    It stops working within 10 seconds, whatever secret of it is presented.
    """
    current_service().keys.revoke(principal(), id)
