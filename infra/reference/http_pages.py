"""Pages of the HTTP API, from the OpenAPI document of the service."""

import json
import re
from functools import cache
from typing import Any, Final

from headrace.http.app import TABLE
from headrace.http.openapi import document
from infra.reference import cell, code, table

_NOTE: Final = "<!-- Written from the OpenAPI document when the site is built. -->\n\n"
_REF: Final = "#/components/schemas/"


@cache
def _document() -> Any:  # noqa: ANN401 (JSON)
    return document(TABLE.routes)


def parts() -> dict[str, str]:
    """Return the list of all operations."""
    rows = [
        (code(f"{method.upper()} {path}"), f"[{one['summary']}]({_page(one)}#{_anchor(one)})")
        for path, methods in _document()["paths"].items()
        for method, one in methods.items()
    ]
    return {"operations": table(("request", "what it does"), rows)}


def pages() -> dict[str, str]:
    """Return a page for each tag, two for the objects, and the document itself."""
    tags: dict[str, list[str]] = {}
    for path, methods in _document()["paths"].items():
        for method, one in methods.items():
            tags.setdefault(one["tags"][0], []).append(_operation(method, path, one))
    made = {f"http/{_slug(tag)}.md": _tag_page(tag, ones) for tag, ones in tags.items()}
    requests = _reached_from_requests()
    schemas = _document()["components"]["schemas"]
    made["http/requests.md"] = _objects("Request objects", requests)
    made["http/answers.md"] = _objects("Answer objects", [n for n in schemas if n not in requests])
    made["openapi.json"] = json.dumps(_document(), indent=1, ensure_ascii=False) + "\n"
    return made


def _tag_page(tag: str, operations: list[str]) -> str:
    about = {"NGSI": "NGSI", "Service": "the service"}.get(tag, tag.lower())
    intro = (
        f"Requests of the HTTP API about {about}. See [the HTTP API](../http-api.md) for keys,"
        " errors and repeats.\n\n"
    )
    return f"# {tag}\n\n{_NOTE}{intro}" + "\n\n".join(operations) + "\n"


def _slug(tag: str) -> str:
    return tag.lower().replace(" ", "-")


def _page(operation: Any) -> str:  # noqa: ANN401 (JSON)
    return f"http/{_slug(operation['tags'][0])}.md"


def _anchor(operation: Any) -> str:  # noqa: ANN401 (JSON)
    return re.sub(r"[^\w\- ]", "", operation["summary"].lower()).replace(" ", "-")


def _operation(method: str, path: str, one: Any) -> str:  # noqa: ANN401 (JSON)
    blocks = [f"## {one['summary']}", code(f"{method.upper()} {path}")]
    if text := one.get("description"):
        blocks.append(text)
    parameters = [
        (
            code(each["name"]),
            each["in"],
            _type(each["schema"]),
            cell(each.get("description", "")),
        )
        for each in one.get("parameters", ())
        if each["name"] != "Idempotency-Key"
    ]
    if parameters:
        blocks.append(table(("parameter", "in", "type", "meaning"), parameters))
    body = one.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        blocks.append(f"Body: {_type(body['schema'])}")
        example = next(iter(body.get("examples", {}).values()), None)
        if example:
            blocks.append(f"```json\n{json.dumps(example['value'], ensure_ascii=False)}\n```")
    answers = []
    for status, answer in one["responses"].items():
        if not status.startswith("2"):
            continue
        schemas = [_type(each.get("schema", {})) for each in answer.get("content", {}).values()]
        answers.append(f"Answer {status}: {', '.join(filter(None, schemas)) or 'no body'}")
    problems = [status for status in one["responses"] if not status.startswith("2")]
    answers.append(f"Errors: {', '.join(problems)}")
    blocks.append("  \n".join(answers))
    return "\n\n".join(blocks)


def _type(schema: Any) -> str:  # noqa: ANN401 (JSON)
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        page = "requests" if name in _reached_from_requests() else "answers"
        return f"[{name}]({page}.md#{name.lower()})"
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    for many in ("anyOf", "oneOf", "allOf"):
        if many in schema:
            return " or ".join(filter(None, map(_type, schema[many])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'values'}"
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


@cache
def _reached_from_requests() -> tuple[str, ...]:
    schemas = _document()["components"]["schemas"]
    bodies = [
        one["requestBody"]
        for methods in _document()["paths"].values()
        for one in methods.values()
        if "requestBody" in one
    ]
    found: set[str] = set()
    todo = set(re.findall(rf"{_REF}(\w+)", json.dumps(bodies)))
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= set(re.findall(rf"{_REF}(\w+)", json.dumps(schemas[name]))) - found
    return tuple(sorted(found))


def _objects(title: str, names: Any) -> str:  # noqa: ANN401 (texts)
    schemas = _document()["components"]["schemas"]
    kind = "requests" if title.startswith("Request") else "answers"
    blocks = [f"# {title}", _NOTE.strip(), f"The objects in {kind} of the HTTP API, by name."]
    for name in names:
        blocks.append(f"## {name}")
        schema = schemas[name]
        if text := schema.get("description"):
            blocks.append(text)
        rows = [
            (
                code(field),
                _type(each) or "any",
                code(json.dumps(each["default"])) if "default" in each else "",
                cell(each.get("description", "")),
            )
            for field, each in schema.get("properties", {}).items()
        ]
        if rows:
            blocks.append(table(("field", "type", "default", "meaning"), rows))
        elif shown := _type(schema):
            blocks.append(f"Type: {shown}")
    return "\n\n".join(blocks) + "\n"
