"""The OpenAPI document: made by Powertools from the routes, completed with what all share."""

import json
from functools import cache
from typing import Any, Final

from aws_lambda_powertools.event_handler import APIGatewayRestResolver
from aws_lambda_powertools.event_handler.openapi.models import HTTPBearer, Server
from pydantic.json_schema import models_json_schema

from headrace import __version__
from headrace.domain.limits import IDEMPOTENCY_KEY
from headrace.http import (
    key_answers,
    lease_answers,
    operator_answers,
    repeats,
    schedule_answers,
    stats_answers,
    worker_answers,
)
from headrace.http.answers import SHOWN
from headrace.http.permissions import needs_of
from headrace.http.problems import CONTENT_TYPE

Document = dict[str, Any]

_DESCRIPTION: Final = """\
A durable task queue. Producers enqueue tasks, workers dequeue them under a lease and report what \
became of them; a lease that lapses, or a failure, brings the task back after a backoff, until its \
retries are used up and it rests among the dead letters.

Instants are RFC 3339 in UTC with microseconds; durations are numbers of seconds. Every answer \
carries `X-Request-Id` and `X-Consumed-Units: w=<write units>, r=<read units>`, what the call cost \
in DynamoDB (a key that is not for all queues is told what its own queues cost). Errors are \
`application/problem+json`.
"""

_PROBLEMS: Final = {
    "400": "`invalid_request`: every bad field is named.",
    "401": "`unauthenticated`: no key, or an unknown or expired one.",
    "403": "`forbidden`: not with a key of this role, or not in this queue.",
    "404": "`not_found`.",
    "409": (
        "`queue_exists`, `key_exists`, `version_mismatch`, `inflight`, `lease_lost` or "
        "`idempotency_conflict`."
    ),
    "413": "`payload_too_large`.",
    "500": "`internal_error`: the `request_id` finds the log entry.",
    "503": "`unavailable`: try again after `Retry-After` seconds.",
}
_ANSWERS: Final = (
    operator_answers,
    key_answers,
    lease_answers,
    schedule_answers,
    stats_answers,
    worker_answers,
)
_CONFLICTS: Final = frozenset(
    {
        "create_queue",
        "create_key",
        "replace_queue",
        "delete_task",
        "dequeue",
        "dequeue_many",
        "open_lease",
        "extend_lease",
        "close_lease",
    }
)
_KEY_PARAMETER: Final = {
    "name": repeats.HEADER,
    "in": "header",
    "required": False,
    "description": (
        "Makes a repeat safe for 15 minutes: the same request under the same key gets the first "
        "2xx answer again, secrets left out; another one is 409 `idempotency_conflict`, and while "
        "the first one runs it is 503. Refusals are not kept. Reports, and enqueues whose every "
        "entry has an id, need none."
    ),
    "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
}
_ATTEMPT_PARAMETER: Final = {
    "name": repeats.ATTEMPT,
    "in": "header",
    "required": False,
    "description": (
        "With an `Idempotency-Key`: which try of this call it is. At the first, 1, nobody needs "
        "to look for earlier ones, which saves a read unit; a later one that is told of no task "
        "makes sure that an earlier one, should it still be waiting, leases none."
    ),
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999},
}
_OWN_RECORD: Final = frozenset({"dequeue", "dequeue_many"})
_REPLAYED: Final = {
    repeats.REPLAYED: {
        "description": "With the answer to a repeat.",
        "schema": {"type": "string", "const": "true"},
    }
}
_OF_ITS_QUEUES: Final = ("/v2/notify", "/management/queue/", "/v1/dequeue")
_NOT_OURS: Final = ("HTTPValidationError", "ValidationError", "ResponseValidationError")
_REFERENCE: Final = "#/components/schemas/{model}"


@cache
def document(resolver: APIGatewayRestResolver) -> Document:
    """Return the document of the routes of *resolver*."""
    made: Document = json.loads(
        resolver.get_openapi_json_schema(
            title="Headrace",
            version=__version__,
            description=_DESCRIPTION,
            servers=[Server(url="/")],
            security_schemes={
                "key": HTTPBearer(description="A key of the service, from `POST /v1/keys`.")
            },
            security=[{"key": []}],
        )
    )
    schemas = made["components"]["schemas"]
    for name in _NOT_OURS:
        schemas.pop(name, None)
    models = [
        (model, "serialization")
        for of in (SHOWN, *(module.SHOWN for module in _ANSWERS))
        for model in of
    ]
    _, shown = models_json_schema(models, ref_template=_REFERENCE)  # type: ignore[arg-type]
    made["components"]["schemas"] = dict(sorted({**schemas, **shown["$defs"]}.items()))
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            roles = needs_of(method, path).roles()
            if "security" not in operation:
                operation["x-roles"] = [role.value for role in roles]
                description = f"{operation.get('description', '')}\n\nRoles: {', '.join(roles)}."
                operation["description"] = description.strip()
            _never_null(operation)
            if method == "post":
                _may_be_repeated(operation)
            operation["responses"] |= _problems(path, operation)
            operation["responses"].pop("422", None)
    return made


def _may_be_repeated(operation: Document) -> None:
    """Add the header that makes a repeat safe, and what it does to answers."""
    operation.setdefault("parameters", []).append(_KEY_PARAMETER)
    if operation["operationId"] in _OWN_RECORD:
        operation["parameters"].append(_ATTEMPT_PARAMETER)
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            answer["headers"] = _REPLAYED


def _never_null(operation: Document) -> None:
    """Take away what only Python says: a parameter or body that may be left out is never null."""
    body = operation.get("requestBody", {}).get("content", {})
    for holder in (*operation.get("parameters", ()), *body.values()):
        options = holder["schema"].pop("anyOf", [holder["schema"]])
        holder["schema"] |= next(option for option in options if option != {"type": "null"})


def served_at(document: Document, base: str) -> Document:
    """Return *document* for a service whose paths begin with *base*, API Gateway's stage."""
    return {**document, "servers": [{"url": base or "/"}]}


def _problems(path: str, operation: Document) -> dict[str, Any]:
    """Return the errors that *operation* may answer with."""
    codes = {"400", "500", "503"}  # an unknown parameter is a 400 everywhere
    if "security" not in operation:
        codes |= {"401", "403"}
    if "requestBody" in operation:
        codes.add("413")
    if "{" in path or path.startswith(_OF_ITS_QUEUES):
        codes.add("404")
    if operation["operationId"] in _CONFLICTS or _KEY_PARAMETER in operation.get("parameters", ()):
        codes.add("409")
    schema = {"$ref": _REFERENCE.format(model="Problem")}
    return {
        code: {"description": _PROBLEMS[code], "content": {CONTENT_TYPE: {"schema": schema}}}
        for code in sorted(codes)
    }
