"""WSGI requests as the events that API Gateway sends."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from headrace.http.events import proxy_event
from infra.local.lambdas import Event

Environ: TypeAlias = dict[str, Any]


def environ_event(
    environ: Environ,
    *,
    method: str,
    path: str,
    resource: str,
    parameters: Mapping[str, str],
    body: bytes,
    request_id: str,
) -> Event:
    """Make the event (payload format 1.0).

    `path` is as the client sent it, still percent-encoded; `resource` is the template's path.
    """
    return proxy_event(
        method,
        path,
        request_id=request_id,
        headers=_headers(environ),
        query=environ.get("QUERY_STRING", ""),
        body=body,
        resource=resource,
        parameters=parameters,
        protocol=environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
        source_ip=environ.get("REMOTE_ADDR", ""),
    )


def _headers(environ: Environ) -> dict[str, str]:
    names = {key: key[5:] for key in environ if key.startswith("HTTP_")}
    names |= {key: key for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(key)}
    headers = {name.replace("_", "-").title(): environ[key] for key, name in names.items()}
    forwarded = [headers.get("X-Forwarded-For"), environ.get("REMOTE_ADDR")]
    headers["X-Forwarded-For"] = ", ".join(address for address in forwarded if address)
    headers["X-Forwarded-Proto"] = environ.get("wsgi.url_scheme", "http")
    headers["X-Forwarded-Port"] = environ.get("SERVER_PORT", "")
    return headers
