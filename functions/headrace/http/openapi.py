"""The OpenAPI document, made from the route table, the request models and the answer structs."""

from collections.abc import Iterator
from functools import cache
from inspect import getdoc
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from headrace import __version__
from headrace.domain.limits import IDEMPOTENCY_KEY
from headrace.http import repeats
from headrace.http.answer_schemas import Document, answer_schemas, schema_of
from headrace.http.fields import RequestBody
from headrace.http.problems import CONTENT_TYPE
from headrace.http.request import JSON
from headrace.http.routing import Parameter, Route
from headrace.wire.base import REFERENCE, JsonValue

_DESCRIPTION: Final = """\
A durable task queue. Producers enqueue tasks, workers dequeue them under a lease and report the \
outcome. If a lease lapses or an attempt fails, the task is retried after a backoff; without \
retries left it becomes a dead letter.

Instants are RFC 3339 in UTC with microseconds; durations are numbers of seconds. Every answer \
carries `X-Request-Id` and `X-Consumed-Units: w=<write units>, r=<read units>`, the cost of the \
call in DynamoDB (for a key with some queues, the cost of these queues). Errors are \
`application/problem+json`.
"""

_PROBLEMS: Final = {
    "400": "`invalid_request`: names every wrong field.",
    "401": "`unauthenticated`: no key, or an unknown or expired one.",
    "403": "`forbidden`: not with a key of this role, or not in this queue.",
    "404": "`not_found`.",
    "409": (
        "`queue_exists`, `key_exists`, `version_mismatch`, `inflight`, `finished`, `lease_lost`, "
        "`batch_exists`, `batch_finished` or `idempotency_conflict`."
    ),
    "413": "`payload_too_large`.",
    "500": "`internal_error`: find the log entry by the `request_id`.",
    "503": "`unavailable`: try again after `Retry-After` seconds.",
}


_NO_CONTENT: Final = 204
_CONFLICTS: Final = frozenset({"replace_queue", "delete_task", "close_lease"})
"""Operations other than POST that may answer 409."""

_KEY_PARAMETER: Final = {
    "name": repeats.HEADER,
    "in": "header",
    "required": False,
    "description": (
        "Makes a repeat safe for 15 minutes: the same request with the same key gets the first "
        "2xx answer again, without secrets. Another request with this key is 409 "
        "`idempotency_conflict`, and a repeat while the first request runs is 503. Refusals are "
        "not recorded. Reports, and enqueues whose entries all have an id, need no key."
    ),
    "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
}
_ATTEMPT_PARAMETER: Final = {
    "name": repeats.ATTEMPT,
    "in": "header",
    "required": False,
    "description": (
        "With an `Idempotency-Key`: the number of this try. The first try, 1, saves a read unit, "
        "because there is no earlier try to look for. A later try that gets no task ensures that "
        "an earlier try that still waits leases none."
    ),
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999},
}
_REPLAYED: Final = {
    repeats.REPLAYED: {
        "description": "In the answer to a repeat.",
        "schema": {"type": "string", "const": "true"},
    }
}
_OF_ITS_QUEUES: Final = ("/v2/notify", "/management/queue/", "/v1/dequeue", "/v1/actions")
_MODEL: Final = REFERENCE.format(name="{model}")


@cache
def document(routes: tuple[Route, ...]) -> Document:
    """Return the document of *routes*."""
    schemas: Document = {}
    paths: Document = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    _drop_null_properties(schemas)
    answers = {answer for route in routes if (answer := route.answer)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted({**answer_schemas(answers), **schemas}.items())),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of the service, from `POST /v1/keys`.",
                }
            },
        },
    }


def _operation(route: Route, schemas: Document) -> Document:
    """Return the operation of *route*; add the schemas that it refers to."""
    summary, _, text = (getdoc(route.call) or "").partition("\n\n")
    operation: Document = {
        "tags": [route.tag],
        "summary": summary.removesuffix("."),
        "operationId": route.operation_id,
        "parameters": [],
        "responses": _responses(route),
        **route.more,
    }
    for one in route.parameters:
        if one.body is not None:
            operation["requestBody"] = _body(route, one.body, schemas)
            if one.is_required:
                operation["requestBody"]["required"] = True
        else:
            operation["parameters"] += _parameters(one, schemas)
    description = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    description = f"{description} {route.description}".strip()
    if route.permissions:
        operation["x-roles"] = [role.value for role in route.roles]
        description = f"{description}\n\nRoles: {', '.join(route.roles)}.".strip()
    else:
        operation["security"] = []
    if description:
        operation["description"] = description
    if route.method == "POST":
        _may_be_repeated(operation)
    operation["responses"] |= _problems(route, operation)
    if not operation["parameters"]:
        del operation["parameters"]
    return operation


def _responses(route: Route) -> Document:
    if route.responses is not None:
        return {str(status): {**answer} for status, answer in route.responses.items()}
    content: Document = {}
    description, answer = "Done.", route.answer
    if answer is not None:
        description = (getdoc(answer) or "").partition("\n\n")[0].replace("\n", " ")
        name = route.schema or schema_of(answer)
        content = {JSON: {"schema": {"$ref": REFERENCE.format(name=name)}}}
    return {
        str(status): {"description": text, "content": content if status != _NO_CONTENT else {}}
        for status, text in {route.status: description, **route.also}.items()
    }


def _parameters(one: Parameter, schemas: Document) -> Iterator[Document]:
    """Yield a parameter, each field of a model as one; add the schemas that they refer to."""
    made = TypeAdapter(one.annotation).json_schema(ref_template=_MODEL)
    schemas |= made.pop("$defs", {})
    parts = {name: made["properties"][name] for name in one.fields} or {one.alias: made}
    for name, part in parts.items():
        options = part.pop("anyOf", [{}])
        schema = {**part, **next(option for option in options if option != {"type": "null"})}
        schema.pop("default", None)
        if not one.fields and not one.is_required and one.default is not None:
            schema["default"] = one.default
        required = one.is_required and not one.fields
        shown: Document = {"name": name, "in": one.place, "required": required, "schema": schema}
        if "description" in schema:
            shown["description"] = schema["description"]
        yield shown


def _body(route: Route, model: type[RequestBody], schemas: Document) -> Document:
    _, made = models_json_schema([(model, "validation")], ref_template=_MODEL)
    schemas |= _without_null_defaults(made["$defs"])
    content: Document = {"schema": {"$ref": REFERENCE.format(name=model.__name__)}}
    if route.examples:
        content["examples"] = route.examples
    return {"content": {JSON: content}}


def _without_null_defaults(node: JsonValue) -> JsonValue:
    """Return a schema without the defaults that are null."""
    if isinstance(node, list):
        return [_without_null_defaults(part) for part in node]
    if not isinstance(node, dict):
        return node
    kept = {word: part for word, part in node.items() if word != "default" or part is not None}
    return {word: _without_null_defaults(part) for word, part in kept.items()}


def _may_be_repeated(operation: Document) -> None:
    """Add the header that makes a repeat safe, and the header of an answer to a repeat."""
    operation["parameters"].append(_KEY_PARAMETER)
    if operation["operationId"] in repeats.DEQUEUES:
        operation["parameters"].append(_ATTEMPT_PARAMETER)
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            answer["headers"] = _REPLAYED


def _drop_null_properties(schemas: Document) -> None:
    """Remove the fields that a body inherits and refuses: generators fail on the type null."""
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for name in [name for name, of in properties.items() if of.get("type") == "null"]:
            del properties[name]


def served_at(document: Document, base: str) -> Document:
    """Return *document* for a service with the path prefix *base*, like a stage of API Gateway."""
    return {**document, "servers": [{"url": base or "/"}]}


def _problems(route: Route, operation: Document) -> dict[str, Any]:
    """Return the errors that *route* may answer with."""
    codes = {"400", "500", "503"}  # an unknown parameter is a 400 everywhere
    if route.permissions:
        codes |= {"401", "403"}
    if "requestBody" in operation:
        codes.add("413")
    if "{" in route.path or route.path.startswith(_OF_ITS_QUEUES):
        codes.add("404")
    if route.operation_id in _CONFLICTS or route.method == "POST":
        codes.add("409")
    schema = {"$ref": REFERENCE.format(name="Problem")}
    return {
        code: {"description": _PROBLEMS[code], "content": {CONTENT_TYPE: {"schema": schema}}}
        for code in sorted(codes)
    }
