"""The service itself: health, key, documents; how it refuses; and what every answer carries."""

import re
from datetime import timedelta
from typing import Any, Final

import msgspec

from headrace.cli.checks.made import NOTIFICATIONS
from headrace.cli.checks.run import LeftOut, Smoke, expect
from headrace.cli.checks.wire import JSON, Exchange, Wrong
from headrace.cli.output import many, span
from headrace.client.calls import UNITS_HEADER, service, tasks
from headrace.client.sending import NewTask, tasks_body
from headrace.domain.errors import (
    HeadraceError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.limits import PAYLOAD_BYTES

_UNITS: Final = re.compile(r"w=[0-9.]+, r=[0-9.]+")
_API: Final = ("/v1/", "/v2/", "/management/")
_METHODS: Final = {"get", "put", "post", "delete"}
_OUT_OF_DATE: Final = timedelta(seconds=60)


def reachable(smoke: Smoke) -> str:
    """Find the service well.  Raises Unavailable, and Wrong for what is none of ours."""
    before = smoke.now()
    try:
        health = smoke.wire.send(service.health(), anonymous=True)
    except Unavailable:
        raise
    except HeadraceError as error:
        raise Wrong(f"no Headrace answers there: {error.detail}") from None
    skew = abs(health.now - before)
    if skew > _OUT_OF_DATE:
        raise Wrong(f"its clock is {span(skew.total_seconds())} off from the one here")
    return f"{smoke.wire.settings.url}, version {health.version}"


def admin(smoke: Smoke) -> str:
    """Look whether the key is an admin's.  Raises Unauthenticated and Forbidden."""
    smoke.send(service.list_keys().at(None))
    return "an admin's"


# ------------------------------------------------------------------------------------- documents


def openapi(smoke: Smoke) -> str:
    """Get the OpenAPI document, which needs no key."""
    document = _document(smoke)
    smoke.kept["openapi"] = smoke.wire.last.body.decode()
    return f"{len(list(_operations(document)))} operations"


def docs(smoke: Smoke) -> str:
    """Get the page of the documentation."""
    seen = smoke.wire.ask("GET", "/v1/docs", anonymous=True)
    smoke.wire.accepted(seen)
    expect(seen.content_type, "text/html", "the type")
    expect("Content-Security-Policy" in seen.headers, right=True, what="whether it has a policy")
    return f"{len(seen.body):,} bytes of HTML with a security policy"


def _document(smoke: Smoke) -> dict[str, Any]:
    seen = smoke.wire.ask("GET", "/v1/openapi.json", anonymous=True)
    smoke.wire.accepted(seen)
    expect(seen.content_type, JSON, "the type")
    found = seen.problem
    if not isinstance(found.get("paths"), dict):
        raise Wrong("there are no paths in it")
    return found


def _operations(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return method and path of every operation."""
    return [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if method in _METHODS
    ]


# -------------------------------------------------------------------------------------- refusals


def no_key(smoke: Smoke) -> str:
    """Call with no key, and with one that nobody has."""
    smoke.wire.ask("GET", "/v1/queues", anonymous=True)
    smoke.problem(Unauthenticated)
    smoke.wire.ask("GET", "/v1/queues", key=f"hr_{smoke.name}")
    smoke.problem(Unauthenticated)
    return "401, with no key and with an unknown one"


def no_path(smoke: Smoke) -> str:
    """Call what is not there: below the API, and beside it."""
    for path in (f"/v1/{smoke.name}", f"/{smoke.name}"):
        smoke.wire.ask("GET", path)
        smoke.problem(NotFound)
    return "404, under /v1 and beside it"


def no_queue(smoke: Smoke) -> str:
    """Enqueue into a queue that is not there."""
    smoke.refused(NotFound, tasks.enqueue_task(f"{smoke.name}-3", NewTask()))
    return "404"


def bad_field(smoke: Smoke) -> str:
    """Send a field out of its range."""
    entry = b'{"payload":1,"delay_in_seconds":-1}'
    seen = smoke.refused(InvalidRequest, tasks.enqueue_entries(smoke.name, [entry]))
    fields = [error.get("field") for error in seen.problem.get("errors", ())]
    expect(fields, ["tasks[0].delay_in_seconds"], "what the refusal names")
    return "400, naming tasks[0].delay_in_seconds"


def too_large(smoke: Smoke) -> str:
    """Send a payload over the limit."""
    body = tasks_body([b'{"payload":"' + b"x" * PAYLOAD_BYTES + b'"}'])
    smoke.wire.ask("POST", f"/v1/queues/{smoke.name}/tasks", body=body)
    smoke.problem(PayloadTooLarge)
    return f"413 for {PAYLOAD_BYTES + 2:,} bytes of payload"


# ------------------------------------------------------------------------------------ every answer


def headers(smoke: Smoke) -> str:
    """Look at the headers of every answer so far."""
    answers = [one for one in smoke.wire.exchanges if one.status is not None]
    for one in answers:
        lacking = _lacking(one)
        if lacking:
            raise Wrong(f"{one.method} {one.path}, answered with {one.status}, has no {lacking}")
    return f"{many(len(answers), 'answer')} with request id, units and security headers"


def _lacking(seen: Exchange) -> str | None:
    """Return the header that an answer should have and has not, or has otherwise."""
    found = seen.headers
    right = {
        "X-Content-Type-Options: nosniff": found.get("X-Content-Type-Options") == "nosniff",
        "Strict-Transport-Security": "max-age=" in found.get("Strict-Transport-Security", ""),
    }
    if "/static/" not in seen.path:  # what never changes may be kept
        right["Cache-Control: no-store"] = "no-store" in found.get("Cache-Control", "")
    if seen.path.startswith(_API):
        right["X-Request-Id"] = bool(seen.request_id)
        right[UNITS_HEADER] = bool(_UNITS.fullmatch(found.get(UNITS_HEADER, "")))
    return next((name for name, there in right.items() if not there), None)


def covered(smoke: Smoke) -> str:
    """Hold what was called against the service's own OpenAPI document."""
    document = msgspec.json.decode(smoke.need("openapi", "document: OpenAPI"))
    called = {(one.method, one.path) for one in smoke.wire.exchanges}
    operations = _operations(document)
    missed = [
        f"{method} {path}"
        for method, path in operations
        if not any(method == by and _is_of(path, at) for by, at in called)
    ]
    if all(one.partition(" ")[2].startswith((NOTIFICATIONS, "/v2/notify")) for one in missed):
        beside = f", {len(missed)} of them left out" if missed else ""
        return f"{len(operations)} operations{beside}"
    raise LeftOut(f"not called: {', '.join(missed)}")


def _is_of(template: str, path: str) -> bool:
    """Whether *path* is one of those that the *template* of an operation means."""
    parts, found = template.split("/"), path.split("/")
    return len(parts) == len(found) and all(
        bool(one) if part.startswith("{") else part == one
        for part, one in zip(parts, found, strict=True)
    )
