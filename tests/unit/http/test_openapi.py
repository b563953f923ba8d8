"""The OpenAPI document and its page say what the service does."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from headrace.http import actions, bulk, keys, queue_bodies, report_bodies, schedules, task_bodies
from headrace.http.app import RESOLVER
from headrace.http.bulk import BulkBody, MoveBody
from headrace.http.docs_page import render
from headrace.http.fields import Examples
from headrace.http.keys import CreateKeyBody
from headrace.http.openapi import document, served_at
from headrace.http.permissions import NEEDS
from headrace.http.queue_bodies import CreateQueueBody, PauseBody, PurgeBody, ReplaceQueueBody
from headrace.http.rawjson import decode
from headrace.http.report_bodies import ReportsBody
from headrace.http.schedules import ScheduleBody
from headrace.http.task_bodies import DequeueBody, DequeueManyBody, EnqueueBody

DOCUMENT = document(RESOLVER)
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
NAMES = [operation["operationId"] for _, _, operation in OPERATIONS]


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for inner in node.values():
            yield from nodes(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from nodes(inner)


def test_every_route_is_there() -> None:
    documented = {f"{method.upper()} {path}" for path, method, _ in OPERATIONS}

    assert documented == {*NEEDS}


def test_every_reference_leads_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    references = {node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node}

    assert references
    assert references <= {f"#/components/schemas/{name}" for name in schemas}


def test_errors_are_documented_as_problems() -> None:
    for path, _, operation in OPERATIONS:
        answers = operation["responses"]
        assert "422" not in answers, path
        assert {"500", "503"} <= set(answers), path
        assert ("401" in answers) == (operation.get("security") != []), path
        of_its_queues = path.startswith(
            ("/v2/notify", "/management/queue/", "/v1/dequeue", "/v1/actions")
        )
        assert ("404" in answers) == ("{" in path or of_its_queues), path
        for code, answer in answers.items():
            assert int(code) < 400 or [*answer["content"]] == ["application/problem+json"], path


def test_the_key_is_asked_for_everywhere_but_at_the_door() -> None:
    assert DOCUMENT["security"] == [{"key": []}]
    assert DOCUMENT["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert {path for path, _, operation in OPERATIONS if operation.get("security") == []} == {
        "/v1/health",
        "/v1/openapi.json",
        "/v1/docs",
    }


EXAMPLES: list[tuple[Any, Examples]] = [
    (CreateQueueBody, queue_bodies.CREATE_QUEUE),
    (CreateKeyBody, keys.CREATE_KEY),
    (ReplaceQueueBody, queue_bodies.REPLACE_QUEUE),
    (PauseBody, queue_bodies.PAUSE),
    (PurgeBody, queue_bodies.PURGE),
    (EnqueueBody, task_bodies.ENQUEUE),
    (DequeueBody, task_bodies.DEQUEUE),
    (DequeueManyBody, task_bodies.DEQUEUE_MANY),
    (ReportsBody, report_bodies.REPORT),
    (actions.ActionBody, actions.BEGIN),
    (bulk.DeleteBody, bulk.DELETE_TASKS),
    (BulkBody, bulk.RESTART_TASKS),
    (BulkBody, bulk.RUN_TASKS),
    (MoveBody, bulk.MOVE_TASKS),
    (ScheduleBody, schedules.PUT_SCHEDULE),
]


def test_examples_are_accepted() -> None:
    for model, examples in EXAMPLES:
        for example in examples.values():
            model.model_validate(decode(json.dumps(example["value"])))


NOTHING_TO_SAY = {
    "rotate_signing_secret",
    *("resume_queue", "run_schedule", "quiet_worker", "stop_worker", "extend_lease"),
    *("pause_action", "resume_action", "cancel_action", "reindex_queue"),
}


def test_every_body_has_an_example() -> None:
    for _, _, operation in OPERATIONS:
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if operation["operationId"] not in NOTHING_TO_SAY:
                assert content["examples"], operation["operationId"]


def test_the_document_is_for_where_it_is_served() -> None:
    assert served_at(DOCUMENT, "/dev")["servers"] == [{"url": "/dev"}]
    assert served_at(DOCUMENT, "")["servers"] == [{"url": "/"}]


class _Page(HTMLParser):
    """Collects tags that are left open, ids, and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.links.add(values.get("href") or values.get("src") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nobody_else() -> None:
    text = render(DOCUMENT)
    page = _Page()
    page.feed(text)

    assert page.open == []
    assert page.links - {"", "openapi.json"} <= {f"#{name}" for name in page.ids}
    assert not page.tags & {"script", "img", "iframe", "link"}
    assert not re.search(r"https?://|url\(|@import", text)
    assert all(f'id="{name}"' in text for name in NAMES)


def test_the_page_escapes_what_it_shows() -> None:
    made = {**DOCUMENT, "info": {"title": "<b>", "version": "1", "description": "`<i>` & more"}}

    text = render(made)

    assert "<b>" not in text
    assert "<code>&lt;i&gt;</code> &amp; more" in text


UNLIMITED = {
    "indexed_fields[]": "names of tags and payload paths, which have limits of their own",
    "headers.*": "headers of a target have one limit together",
    "lambda": "an ARN that the deployment lists",
    "type": "cut to what is kept of an error",
    "message": "likewise",
    "detail": "likewise",
    "payload_ref": "a name that the service has granted",
    "on_dead": "an enum that may be null",
}
"""Texts of bodies and queries without a length in the document, and why."""


def limitless(schema: dict[str, Any], at: str, seen: frozenset[str]) -> Iterator[str]:
    """Yield the members of a request, by name, whose length, size or range has no limit."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from limitless(SCHEMAS[name], at, seen | {name})
        return
    for option in (*schema.get("anyOf", ()), *schema.get("allOf", ()), *schema.get("oneOf", ())):
        shared = {word: of for word, of in schema.items() if word in {"maxLength", "enum"}}
        yield from limitless(option if "$ref" in option else option | shared, at, seen)
    match schema.get("type"):
        case "string" if not {"maxLength", "pattern", "enum", "const", "format"} & schema.keys():
            yield at
        case "integer" | "number" if not {"maximum", "enum"} & schema.keys():
            yield at
        case "array" if "maxItems" not in schema:
            yield at
    if "items" in schema:
        yield from limitless(schema["items"], f"{at}[]", seen)
    for name, inner in schema.get("properties", {}).items():
        yield from limitless(inner, name, seen)
    if isinstance(others := schema.get("additionalProperties"), dict):
        yield from limitless(others, f"{at}.*", seen)


def test_every_limit_of_a_request_is_in_the_document() -> None:
    found = set()
    for path, _, operation in OPERATIONS:
        if not path.startswith("/v1/"):
            continue
        for body in operation.get("requestBody", {}).get("content", {}).values():
            found |= {*limitless(body["schema"], "body", frozenset())}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                found |= {*limitless(parameter["schema"], parameter["name"], frozenset())}

    assert found - UNLIMITED.keys() == set()
