"""The OpenAPI document and its page say what the service does."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import jsonschema_rs

from headrace.http.app import TABLE
from headrace.http.openapi import document
from headrace.http.service import render

DOCUMENT = document(TABLE.routes)
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
NAMES = [operation["operationId"] for _, _, operation in OPERATIONS]


def test_every_route_is_there() -> None:
    documented = {f"{method.upper()} {path}" for path, method, _ in OPERATIONS}

    assert documented == {f"{route.method} {route.path}" for route in TABLE.routes}


def test_the_key_is_asked_for_everywhere_but_at_the_door() -> None:
    assert DOCUMENT["security"] == [{"key": []}]
    assert DOCUMENT["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert {path for path, _, operation in OPERATIONS if operation.get("security") == []} == {
        "/v1/health",
        "/v1/openapi.json",
        "/v1/docs",
    }


NOTHING_TO_SAY = {
    "rotate_signing_secret",
    *("resume_queue", "run_schedule", "quiet_worker", "stop_worker", "extend_lease"),
    *("pause_action", "resume_action", "cancel_action", "reindex_queue"),
}


def test_every_body_has_examples_that_its_schema_allows() -> None:
    for _, _, operation in OPERATIONS:
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if operation["operationId"] in NOTHING_TO_SAY:
                continue
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            assert content["examples"], operation["operationId"]
            for example in content["examples"].values():
                jsonschema_rs.validate(schema, example["value"])


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
