"""The API: a request in, its answer out.

Everything that holds for every request is here: its id, its cost, its key, the limits on its size
and on that of the answer, and the one shape of errors.  Routes are in the modules of their nouns.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.limits import SENT_BYTES, sent_bytes
from headrace.http import (
    actions,
    batches,
    bulk,
    dequeue,
    enqueue,
    keys,
    payloads,
    queues,
    repeats,
    reports,
    schedules,
    service,
    stats,
    tasks,
    workers,
)
from headrace.http.ngsi import notify, quantumleap
from headrace.http.problems import is_expected, problem
from headrace.http.request import CallContext, Reply, Request, request_of, serving
from headrace.http.routing import RouteTable, require_queues
from headrace.runtime.function import ALWAYS
from headrace.runtime.wiring import current_service
from headrace.store.call_scope import Meter, acting, in_time, metered

TABLE: Final = RouteTable(
    chain.from_iterable(
        routes.declared
        for routes in (
            enqueue.routes,
            dequeue.routes,
            reports.routes,
            tasks.routes,
            payloads.routes,
            workers.lease_routes,
            batches.routes,
            bulk.routes,
            actions.routes,
            queues.routes,
            stats.routes,
            schedules.routes,
            workers.routes,
            keys.routes,
            actions.audit_routes,
            service.routes,
            notify.routes,
            quantumleap.routes,
        )
    )
)

_log: Final = logging.getLogger("headrace")
_FORBIDDEN: Final = int(HTTPStatus.FORBIDDEN)
_MOST_BYTES_OF_A_CHARACTER: Final = 6  # in an answer as Lambda sends it


def handle(event: dict[str, Any], context: CallContext) -> dict[str, Any]:
    """Answer an event of API Gateway in the form that API Gateway takes."""
    reply = answer(request_of(event, context))
    return {
        "statusCode": reply.status,
        "multiValueHeaders": {name: [value] for name, value in reply.headers.items()},
        "body": reply.text(),
        "isBase64Encoded": False,
    }


def answer(request: Request) -> Reply:
    """Answer one request; an error is an answer too."""
    with metered() as meter, serving(request):
        try:
            with in_time(request.context), _acting_for(request):
                reply = _answer(request)
        except Exception as error:  # noqa: BLE001  the edge of the process: logged here
            _log_error(error, request.id)
            reply = problem(error, request_id=request.id)
    # The cost of a refusal would show the size of a task that the key may not see.
    cost = Meter() if reply.status == _FORBIDDEN else meter
    reply.headers.update(ALWAYS)
    if reply.content_type is not None and reply.content is not None:
        reply.headers["Content-Type"] = reply.content_type
    reply.headers["X-Request-Id"] = request.id
    reply.headers["X-Consumed-Units"] = f"w={cost.write:g}, r={cost.read:g}"
    return reply


def _acting_for(request: Request) -> AbstractContextManager[object]:
    """Return a block in which the key of the request is the actor, if the request needs a key."""
    key = request.key()
    if key is None:
        return nullcontext()
    return acting(current_service().keys.verify(key), request_id=request.id)


def _answer(request: Request) -> Reply:
    body = request.text()
    route, in_path = TABLE.find(request.method, request.path)
    route.admit(in_path)
    arguments = route.arguments(request, in_path, body)
    require_queues(arguments, in_path)
    reply = repeats.once(request, route, arguments)
    _require_size(reply.text())
    return reply


def _require_size(text: str) -> None:
    """Raise RuntimeError for an answer that is larger than Lambda sends.

    Every route bounds its own answer, so an answer over the limit is a defect.
    """
    if len(text) * _MOST_BYTES_OF_A_CHARACTER > SENT_BYTES and sent_bytes(text) > SENT_BYTES:
        message = f"an answer of {len(text)} characters is more than Lambda lets out"
        raise RuntimeError(message)


def _log_error(error: Exception, request_id: str) -> None:
    if not is_expected(error):
        _log.exception("unexpected error", exc_info=error, extra={"request_id": request_id})
    elif isinstance(error, Unavailable):
        _log.warning(error.detail, extra={"request_id": request_id})
