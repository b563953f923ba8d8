"""The header ``Idempotency-Key``: a repeated request gets the answer of the first one.

It is for every POST, after the request was admitted and checked. Requests that are safe to repeat
need no record, and a dequeue keeps its own.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from headrace.domain.errors import InvalidRequest
from headrace.domain.limits import IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_RE, pattern_in_words
from headrace.domain.repeat import KeyedRequest, RecordedAnswer
from headrace.http.request import Reply, Request, principal
from headrace.http.routing import Route
from headrace.ops.delivery.idempotency import DeliveryBatch
from headrace.runtime.wiring import current_service
from headrace.store.call_scope import drawing

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replay"
ATTEMPT: Final = "X-Attempt"
"""The header with the number of the client's try; at the first try a dequeue saves a read unit."""

DEQUEUES: Final = frozenset({"dequeue", "dequeue_many"})
_NOT_RECORDED: Final = DEQUEUES | {"report", "upload_payload"}
"""Operations whose answer is not recorded: the tasks record them, or the operation does.

A recorded answer of an upload would be a URL with which everyone can write.
"""

_DIGEST_BYTES: Final = 12
_ATTEMPT_RE: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_SHOWN_ONCE: Final = "secret"  # the name of the field


def once(request: Request, route: Route, arguments: Mapping[str, Any]) -> Reply:
    """Return the answer of *route*, or the recorded answer if the request is a repeat.

    Raises InvalidRequest that names the header, IdempotencyConflict if the key came with another
    request before, and Unavailable while the first request still runs.
    """
    key = key_of(request) if route.method == "POST" else None
    body = arguments.get("body")
    if key is None or route.operation_id in _NOT_RECORDED or (body and body.is_safe_to_repeat):
        return route.reply(arguments)
    keyed = _keyed(request, key)
    repeats, secret = current_service().repeats, current_service().derived_ids.secret
    turn = repeats.begin(keyed, within=request.time_left)
    if isinstance(turn, RecordedAnswer):
        return Reply(turn.body, turn.status, {REPLAYED: "true"}, turn.content_type)
    answered = False
    try:
        with drawing(turn.draws(secret.value())):
            reply = route.reply(arguments)
        answered = reply.status < HTTPStatus.MULTIPLE_CHOICES
    finally:
        if not answered:
            repeats.give_up(turn)
    body = _without_secret(reply.text())
    repeats.finish(turn, RecordedAnswer(reply.status, reply.content_type, body))
    return reply


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a request, None without one.

    Raises InvalidRequest that names the header if it came twice, or if the text cannot be a key.
    """
    key = request.header(HEADER)
    if key is not None and not IDEMPOTENCY_KEY_RE.fullmatch(key):
        raise InvalidRequest.of(HEADER, pattern_in_words(IDEMPOTENCY_KEY))
    return key


def _keyed(request: Request, key: str) -> KeyedRequest:
    head = json.dumps([request.method, request.path, sorted(request.query.items())])
    digest = hashlib.blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    digest.update(request.text().encode("utf-8", "surrogatepass"))
    return KeyedRequest(principal().key_id, key, digest.hexdigest())


def batch_of(request: Request, *, grouped: bool) -> DeliveryBatch | None:
    """Return the batch of a dequeue with a key, None without one.  Raises as key_of()."""
    key = key_of(request)
    if key is None:
        return None
    number = request.headers.get(ATTEMPT.lower(), "")
    attempt = int(number) if _ATTEMPT_RE.fullmatch(number) else None
    return DeliveryBatch(
        current_service(), _keyed(request, key), request.time_left, grouped, attempt
    )


def _without_secret(body: str) -> str:
    """Return an answer as it may be stored: without the secret, which is shown once."""
    if f'"{_SHOWN_ONCE}"' not in body:
        return body
    fields = json.loads(body)
    if not isinstance(fields, dict) or _SHOWN_ONCE not in fields:
        return body
    hidden = dict.fromkeys({_SHOWN_ONCE, "previous"} & fields.keys())
    return json.dumps({**fields, **hidden}, ensure_ascii=False, separators=(",", ":"))
