"""The service itself: its health, and its API as a document and as a page.  None needs a key."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from typing import Any, Final

from headrace import __version__
from headrace.http.request import Reply, this_request
from headrace.http.routing import Routes
from headrace.runtime.wiring import current_service
from headrace.wire.base import instant, to_json
from headrace.wire.service import Health

routes: Final = Routes("Service")


@routes.add("GET", "/v1/health")
def health() -> Health:
    """Check that the service and its tables answer."""
    use = current_service()
    use.queues.list(limit=1)
    return Health(status="ok", version=__version__, now=instant(use.now()))


@routes.add(
    "GET",
    "/v1/openapi.json",
    responses={200: {"description": "The document.", "content": {"application/json": {}}}},
)
def openapi() -> Reply:
    """Get this API as an OpenAPI document."""
    # A cold start that handles tasks does without these modules: they take 90 ms to import.
    from headrace.http import app, openapi  # noqa: PLC0415

    made = openapi.served_at(openapi.document(app.TABLE.routes), this_request().base)
    return Reply(to_json(made))


@routes.add(
    "GET", "/v1/docs", responses={200: {"description": "The page.", "content": {"text/html": {}}}}
)
def docs() -> Reply:
    """Get this API as a page."""
    headers = {"Content-Security-Policy": POLICY}
    return Reply(_page(), headers=headers, content_type="text/html; charset=utf-8")


@cache
def _page() -> str:
    from headrace.http import app, openapi  # noqa: PLC0415  as above

    return render(openapi.document(app.TABLE.routes))


# --------------------------------------------------------------------------------- the page as HTML

Node = Mapping[str, Any]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
h3 { margin-top: 2.5rem; }
code, pre { font: 0.875em/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: 0.75rem; overflow-x: auto; }
.method { display: inline-block; min-width: 4.5em; font-weight: bold; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0;
  border-bottom: 1px solid var(--line); }
nav ul { list-style: none; padding: 0; columns: 20rem; }
"""

POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page: a browser may only show it, with its own style."""


def render(document: Node) -> str:
    """Return *document* as an HTML page without scripts and without files from elsewhere."""
    info = document["info"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    nouns = list(dict.fromkeys(operation["tags"][0] for _, _, operation in operations))
    sections = "".join(
        f"<h2>{escape(noun)}</h2>"
        + "".join(_operation(*found) for found in operations if found[2]["tags"][0] == noun)
        for noun in nouns
    )
    schemas = document["components"]["schemas"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title}</h1>{_paragraphs(info['description'])}"
        '<p>This page as an <a href="openapi.json">OpenAPI document</a>.</p>'
        f"<nav><ul>{''.join(_link(*found) for found in operations)}</ul></nav>"
        f"{sections}<h2>Shapes</h2>"
        f"{''.join(_shape(name, schema) for name, schema in schemas.items())}"
        "</body></html>\n"
    )


def _link(method: str, path: str, operation: Node) -> str:
    summary = escape(operation["summary"])
    return (
        f'<li><a href="#{escape(operation["operationId"])}" title="{escape(f"{method} {path}")}">'
        f"{summary}</a></li>"
    )


def _operation(method: str, path: str, operation: Node) -> str:
    parts = [
        f'<h3 id="{escape(operation["operationId"])}">{escape(operation["summary"])}</h3>',
        f'<p><code><span class="method">{method}</span> {escape(path)}</code></p>',
        _paragraphs(operation.get("description", "")),
    ]
    if "parameters" in operation:
        rows = (
            (
                escape(parameter["name"]),
                f"{parameter['in']}, {_kind(parameter['schema'])}",
                _line(parameter.get("description", "")),
            )
            for parameter in operation["parameters"]
        )
        parts.append(_table(("Parameter", "Where, what", ""), rows))
    for content in operation.get("requestBody", {}).get("content", {}).values():
        parts.append(f"<p>Body: {_kind(content['schema'])}</p>")
        parts += [
            f"<p>{_line(example['summary'])}</p>"
            f"<pre>{escape(json.dumps(example['value'], indent=2, ensure_ascii=False))}</pre>"
            for example in content.get("examples", {}).values()
        ]
    answers = (
        (escape(str(code)), _contents(answer), _line(answer["description"]))
        for code, answer in sorted(operation["responses"].items())
    )
    parts.append(_table(("Answer", "Body", ""), answers))
    return "".join(parts)


def _contents(answer: Node) -> str:
    return ", ".join(
        _kind(content["schema"]) if "schema" in content else escape(media_type)
        for media_type, content in answer.get("content", {}).items()
    )


def _shape(name: str, schema: Node) -> str:
    parts = [f'<h3 id="shape-{escape(name)}">{escape(name)}</h3>']
    parts.append(_paragraphs(schema.get("description", "")))
    if "enum" in schema or "anyOf" in schema:
        parts.append(f"<p>{_kind(schema)}</p>")
    if "properties" in schema:
        required = schema.get("required", ())
        rows = (
            (
                escape(field) + (" *" if field in required else ""),
                _kind(node),
                _line(" ".join(filter(None, (node.get("description"), _bounds(node))))),
            )
            for field, node in schema["properties"].items()
        )
        parts.append(_table(("Field (* required)", "What", ""), rows))
    return "".join(parts)


def _kind(node: Node) -> str:
    """Return the type of the values of *node*, with links to schemas."""
    if "$ref" in node:
        name = escape(node["$ref"].rpartition("/")[2])
        return f'<a href="#shape-{name}">{name}</a>'
    if "anyOf" in node:
        return " or ".join(_kind(option) for option in node["anyOf"])
    if "enum" in node:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in node["enum"])
    if "const" in node:
        return f"<code>{escape(json.dumps(node['const']))}</code>"
    if node.get("type") == "array" and "items" in node:
        return f"array of {_kind(node['items'])}"
    return escape(node.get("format") or node.get("type") or "any JSON value")


def _bounds(node: Node) -> str:
    """Return the limits of *node*, or of its first alternative with limits, in words."""
    for option in (node, *node.get("anyOf", ())):
        words = [
            f"{word} {option[key]:,}"
            for key, word in (
                ("minimum", "from"),
                ("exclusiveMinimum", "more than"),
                ("maximum", "to"),
                ("minItems", "at least"),
                ("maxItems", "at most"),
            )
            if key in option
        ]
        if "default" in node and not isinstance(node["default"], (dict, list)):
            words.append(f"(default {json.dumps(node['default'])})")
        if words:
            return " ".join(words)
    return ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first = "".join(f"<th>{cell}</th>" for cell in head)
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table><tr>{first}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_line(part)}</p>" for part in text.strip().split("\n\n") if part)


def _line(text: str) -> str:
    """Return *text* as HTML, with the parts in backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
