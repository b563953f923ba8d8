"""The header ``Idempotency-Key``: a request that is sent again is answered as the first time.

It stands around every POST, after whatever refuses a request for its key or its form.  Requests
that are safe to repeat by themselves are left to themselves, and a dequeue keeps its own record.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Route, Router
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import InvalidRequest
from headrace.domain.limits import IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_RE, pattern_in_words
from headrace.domain.repeat import KeyedRequest, RecordedAnswer
from headrace.http.leases import LeaseBody
from headrace.http.permissions import principal
from headrace.http.request import header
from headrace.http.routing import Resolver
from headrace.http.task_bodies import EnqueueBody
from headrace.ops.delivery.idempotency import DeliveryBatch
from headrace.runtime.wiring import use_cases
from headrace.store.call_scope import drawing

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replay"
ATTEMPT: Final = "X-Attempt"
"""Which try of its own it is, where a client says so: at the first a dequeue saves 1 read unit."""

_BY_THEMSELVES: Final = frozenset({"report", "dequeue", "dequeue_many", "upload_payload"})
"""Operations that need no answer kept: what they did stands with the tasks, or they see to it.

That of an upload would be a URL that lets anybody write.
"""

_MARGIN: Final = timedelta(seconds=1)  # for clocks that differ
_DIGEST_BYTES: Final = 12
_ATTEMPT_RE: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_SHOWN_ONCE: Final = "secret"  # the name of the field


def once(app: Resolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Run a POST under its key, or give the answer of the first one that came under it.

    Raises InvalidRequest naming the header, IdempotencyConflict when the key was sent with another
    request, and Unavailable while the first one still runs.
    """
    route: Route = app.context["_route"]
    event = app.current_event.raw_event
    key = key_in(event) if route.method == "POST" and app.serves(route) else None
    if key is None or _safe_by_itself(route, app.context["_route_args"]):
        return next_middleware(app)
    keyed = request(event, key)
    repeats, secret = use_cases().repeats, use_cases().derived_ids.secret
    turn = repeats.begin(keyed, within=time_left(app.lambda_context))
    if isinstance(turn, RecordedAnswer):
        return Response(turn.status, turn.content_type, turn.body, {REPLAYED: "true"})
    answered = False
    try:
        with drawing(turn.draws(secret.value())):
            response = next_middleware(app)
        answered = response.status_code < HTTPStatus.MULTIPLE_CHOICES
    finally:
        if not answered:
            repeats.give_up(turn)
    body = _without_secret(response.body or "")
    repeats.finish(turn, RecordedAnswer(response.status_code, response.content_type, body))
    return response


def key_in(event: Mapping[str, Any]) -> str | None:
    """Return the key of a request; None without one.

    Raises InvalidRequest naming the header for what can be no key.
    """
    key = header(event, HEADER.lower())
    if key is not None and not IDEMPOTENCY_KEY_RE.fullmatch(key):
        raise InvalidRequest.of(HEADER, pattern_in_words(IDEMPOTENCY_KEY))
    return key


def request(event: Mapping[str, Any], key: str) -> KeyedRequest:
    """Return the request under *key*."""
    query = event.get("multiValueQueryStringParameters") or {}
    head = json.dumps([event["httpMethod"], event["path"], sorted(query.items())])
    body = event.get("body") or ""
    digest = hashlib.blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    digest.update(body.encode("utf-8", "surrogatepass"))
    return KeyedRequest(principal().key_id, key, digest.hexdigest())


def batch_of(router: Router, *, grouped: bool) -> DeliveryBatch | None:
    """Return the batch of a dequeue under its key; None without one.  Raises as key_in()."""
    event = router.current_event.raw_event
    key = key_in(event)
    if key is None:
        return None
    keyed = request(event, key)
    number = header(event, ATTEMPT.lower()) or ""
    attempt = int(number) if _ATTEMPT_RE.fullmatch(number) else None
    within = time_left(router.lambda_context)
    return use_cases().batches.of(keyed, within=within, grouped=grouped, attempt=attempt)


def time_left(context: LambdaContext) -> timedelta:
    """Return how long the request at hand may still be worked on."""
    return timedelta(milliseconds=context.get_remaining_time_in_millis()) + _MARGIN


def _safe_by_itself(route: Route, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a repeat of this request needs no record of the first answer.

    An enqueue with a dedupe key needs one even if each entry has an id: after the holder of the
    key has ended, or was overwritten by another request, the same entry would take effect again.
    A second lease of one name is refused while the first is open.
    """
    body = arguments.get("body")
    if isinstance(body, EnqueueBody):
        return all(entry.id is not None and entry.dedupe_key is None for entry in body.tasks)
    if isinstance(body, LeaseBody):
        return body.name is not None
    return route.operation_id in _BY_THEMSELVES


def _without_secret(body: str) -> str:
    """Return an answer as it may be kept: the secret in it is shown once, and stored nowhere."""
    if f'"{_SHOWN_ONCE}"' not in body:
        return body
    fields = json.loads(body)
    if not isinstance(fields, dict) or _SHOWN_ONCE not in fields:
        return body
    hidden = dict.fromkeys({_SHOWN_ONCE, "previous"} & fields.keys())
    return json.dumps({**fields, **hidden}, ensure_ascii=False, separators=(",", ":"))
