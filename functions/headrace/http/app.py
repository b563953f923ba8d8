"""The API as one function from API Gateway's event to its answer.

What holds for every request is here: its id, what it cost, the key, the size of the body, and the
one shape of errors.  Routes are in the modules of their nouns.
"""

from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import Unavailable
from headrace.domain.limits import SENT_BYTES, sent_bytes
from headrace.http import (
    actions,
    audit,
    batches,
    bulk,
    keys,
    leases,
    payloads,
    permissions,
    queues,
    repeats,
    schedules,
    service,
    stats,
    tasks,
    workers,
)
from headrace.http.ngsi import notify, quantumleap
from headrace.http.problems import CONTENT_TYPE, ProblemAnswer, is_ours, problem
from headrace.http.request import (
    presented_key,
    request_id_of,
    with_body_text,
    without_base_path,
)
from headrace.http.routing import ApiAnswer, Resolver, no_unknown_parameters
from headrace.ops.operators.keys import acting
from headrace.runtime.function import ALWAYS, in_time
from headrace.runtime.wiring import use_cases
from headrace.store.call_scope import Meter, metered

_log: Final = Logger(service="headrace")
_FORBIDDEN: Final = int(HTTPStatus.FORBIDDEN)  # which Python 3.11 finds by a call, each time
_MOST_BYTES_OF_A_CHARACTER: Final = 6  # in an answer as it goes out
_ROUTES: Final = (
    tasks,
    payloads,
    leases,
    batches,
    bulk,
    actions,
    queues,
    stats,
    schedules,
    workers,
    keys,
    audit,
    service,
    notify,
    quantumleap,
)


def _build() -> Resolver:
    resolver = Resolver()
    resolver.use(middlewares=[no_unknown_parameters, permissions.keep_inside, repeats.once])
    for routes in _ROUTES:
        resolver.include_router(routes.router)

    def failed(error: Exception) -> Response[str]:
        event = resolver.current_event.raw_event
        refusal = _problem(error, event, request_id_of(event, resolver.lambda_context))
        return Response(refusal.status, CONTENT_TYPE, refusal.body, dict(refusal.headers))

    resolver.exception_handler(Exception)(failed)
    resolver.prepare()
    return resolver


def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request, as Lambda brings and takes it."""
    status, headers, body = answer(without_base_path(event), context)
    return {
        "statusCode": status,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "body": body,
        "isBase64Encoded": False,
    }


def answer(event: dict[str, Any], context: LambdaContext) -> ApiAnswer:
    """Answer one request; *event* has at least what `api_event` gives it."""
    request_id = request_id_of(event, context)
    with metered() as meter:
        try:
            with in_time(context), _on_behalf(event, request_id):
                found = _sendable(RESOLVER.answer(with_body_text(event), context))
        except Exception as error:  # noqa: BLE001  the edge of the process: logged in _problem
            refusal = _problem(error, event, request_id)
            headers = {"Content-Type": CONTENT_TYPE, **refusal.headers}
            found = ApiAnswer(refusal.status, headers, refusal.body)
    # What a refusal cost would tell the size of a task that the key may not know of.
    cost = Meter() if found.status == _FORBIDDEN else meter
    found.headers.update(ALWAYS)
    found.headers["X-Request-Id"] = request_id
    found.headers["X-Consumed-Units"] = f"w={cost.write:g}, r={cost.read:g}"
    return found


def _sendable(answer: ApiAnswer) -> ApiAnswer:
    """Return *answer* if Lambda lets it out; else API Gateway would say 502 in words of its own.

    Whatever answers with many things bounds them by itself, so what is raised here is a defect.
    """
    body = answer.body
    if len(body) * _MOST_BYTES_OF_A_CHARACTER > SENT_BYTES and sent_bytes(body) > SENT_BYTES:
        message = f"an answer of {len(body)} characters is more than Lambda lets out"
        raise RuntimeError(message)
    return answer


def _on_behalf(event: dict[str, Any], request_id: str) -> AbstractContextManager[object]:
    """Return a block in which whose key the request carries is known, if it needs one."""
    key = presented_key(event)
    if key is None:
        return nullcontext()
    return acting(use_cases().keys.verify(key), request_id=request_id)


def _problem(error: Exception, event: dict[str, Any], request_id: str) -> ProblemAnswer:
    """Return the answer to *error*, and log it when nobody foresaw it."""
    where = f"{event.get('httpMethod')} {event.get('path')}"
    if not is_ours(error):
        _log.exception("unexpected error", exc_info=error, extra={"request_id": request_id})
    elif isinstance(error, Unavailable):
        _log.warning(error.detail, extra={"request_id": request_id})
    return problem(error, request_id=request_id, where=where)


RESOLVER: Final = _build()
