"""Calls about keys, the audit, and the service itself."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headrace.client.calls import (
    ApiCall,
    PagedCall,
    RawAnswer,
    Read,
    deletes,
    gets,
    instant_text,
    json_body,
    lists,
    params_of,
    path_of,
    posts,
    reads,
)
from headrace.domain import limits
from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.ids import new_idempotency_key
from headrace.wire.base import Answer, JsonValue
from headrace.wire.service import AuditEntries, AuditEntry, Health, Key, KeyInFull, Keys, NewKey


class _Made(Answer, frozen=True, kw_only=True):
    id: str
    secret: str | None


def create_key(
    name: str, role: str, queues: Sequence[str], *, expires_at: datetime | None = None
) -> ApiCall[NewKey]:
    """Create a key for the queues that match the patterns; only this answer shows its secret.

    Without *expires_at* the key never expires.  Raises KeyExists if a valid key has the name, and
    Conflict if the key was created but the answer with its secret was lost.
    """
    body = {"name": name, "role": role, "queues": list(queues)}
    if expires_at is not None:
        body["expires_at"] = instant_text(expires_at, field="expires_at")
    return posts(path_of("keys"), _reads_secret("was made", "delete it and make another"), body)


def rotate_key(id: str, *, overlap_seconds: float = 0) -> ApiCall[NewKey]:
    """Give a key a new secret, which only this answer shows.

    The old secret works for *overlap_seconds* more; at most two work at a time.  Raises NotFound,
    and Conflict if the key was rotated but the answer with its secret was lost.
    """
    read = _reads_secret("has another secret", "let the overlap pass and rotate it again")
    return posts(path_of("keys", id, "rotate"), read, {"overlap_seconds": overlap_seconds})


def _reads_secret(done: str, instead: str) -> Read[NewKey]:
    """How a key with its secret is read: a repeat after a lost answer shows none."""

    def read(answer: RawAnswer) -> NewKey:
        made = reads(_Made)(answer)
        if made.secret is None:
            raise Conflict(f"key {made.id} {done}, and the answer with it was lost: {instead}")
        return reads(NewKey)(answer)

    return read


def list_keys(*, query: str | None = None) -> PagedCall[Key]:
    """Yield the keys in the order of their creation.

    *query* filters them, in the language of the console's search boxes: ``role:admin queue:mail``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    params = params_of(query=query, limit=limits.LIST_PAGE)
    return lists(path_of("keys"), Keys, lambda page: page.keys, params)


def get_key(id: str) -> ApiCall[KeyInFull]:
    """Return a key with its schedules and the actions that have not ended, also a revoked one.

    Raises NotFound.
    """
    return gets(KeyInFull, "keys", id)


def delete_key(id: str) -> ApiCall[None]:
    """Revoke a key.  Raises NotFound."""
    return deletes("keys", id)


def list_audit(
    *,
    queue: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    query: str | None = None,
) -> PagedCall[AuditEntry]:
    """Yield the changes made by hand, newest first; *actor* is the name or id of a key.

    *query* filters them, in the language of the console's search boxes: ``action:purge nightly``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    named = params_of(queue=queue, actor=actor, action=action, from_=from_, to=to)
    params = {**named, **params_of(query=query, limit=limits.LIST_PAGE)}
    return lists(path_of("audit"), AuditEntries, lambda page: page.entries, params)


def health() -> ApiCall[Health]:
    """Return the service's version and time.  Raises Unavailable when its tables are away."""
    return gets(Health, "health")


def call(
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    body: JsonValue = None,
) -> ApiCall[Any]:
    """Send any request, and return the answer's JSON; None for an empty answer.

    The client repeats a request that did not arrive, a method that may be repeated, and a POST
    with an idempotency key.
    Raises InvalidRequest for a *path* without its slash, or with a control character.
    """
    if not path.startswith("/"):
        raise InvalidRequest.of("path", f"must begin with a slash, and {path!r} does not")
    if not path.isprintable():
        raise InvalidRequest.of("path", f"must not have control characters, and {path!r} has one")

    def read(answer: RawAnswer) -> JsonValue:
        return msgspec.json.decode(answer.body) if answer.body else None

    return ApiCall(
        method.upper(),
        path,
        read,
        params=params,
        body=None if body is None else lambda _: json_body(body),
        repeatable=method.upper() in {"GET", "PUT", "POST"},
        key=new_idempotency_key() if method.upper() == "POST" else None,
    )
