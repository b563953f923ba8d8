"""Every page of the console, opened once with the session that the sign-in has begun."""

from typing import Final
from urllib.parse import urlencode

from headrace.cli.checks import beside
from headrace.cli.checks.run import Smoke
from headrace.cli.checks.wire import Exchange, Wrong
from headrace.domain.errors import Forbidden

_NEEDS: Final = (
    ("signed in", "console: sign in"),
    ("token", "console: sign in"),
    ("by hand", "schedule: run"),
    ("schedule", "schedule: put"),
    ("batch", "batch: make"),
    ("action", "action: begin"),
    ("key", "key: make"),
    ("worker", "worker: sign of life"),
)
_SHOWN: Final = 200
_REDIRECT: Final = 303
_OF_ALL_QUEUES: Final = ("/console/proof",)  # refused to a key for some queues
_TO_OTHERS: Final = ("/console/dead", "/console/search")  # these may lead to another page

PAGES: Final = (
    "/console",
    "/console/actions",
    "/console/actions/{action}",
    "/console/audit",
    "/console/batches",
    "/console/batches/{batch}",
    "/console/batches/{batch}/cancel",
    "/console/create-key",
    "/console/create-queue",
    "/console/create-schedule",
    "/console/dead",
    "/console/errors",
    "/console/keys",
    "/console/keys/{key}/revoke",
    "/console/keys/{key}/rotate",
    "/console/pipelines",
    "/console/proof",
    "/console/queues/{queue}",
    "/console/queues/{queue}/delete",
    "/console/queues/{queue}/purge",
    "/console/queues/{queue}/schedules/{schedule}",
    "/console/queues/{queue}/schedules/{schedule}/delete",
    "/console/queues/{queue}/schedules/{schedule}/edit",
    "/console/queues/{queue}/settings",
    "/console/schedules",
    "/console/search?q={task}",
    "/console/tasks/{task}",
    "/console/tasks/{task}/delete",
    "/console/tasks/{task}/enqueue",
    "/console/worker?name={worker}",
    "/console/worker/stop?name={worker}",
    "/console/workers",
)
"""All but the sign-in and the dry run, which begin with a form of their own."""


def open_all(smoke: Smoke) -> str:
    """Open every page, with what this test has made."""
    smoke.needs(*_NEEDS)
    names = {name: smoke.kept[name] for name in ("schedule", "batch", "action", "key", "worker")}
    names |= {"queue": smoke.other, "task": smoke.kept["by hand"]}
    for page in PAGES:
        path = page.format(**names)
        seen = _open(smoke, "GET", path)
        leads_on = seen.status == _REDIRECT and path.startswith(_TO_OTHERS)
        hidden = path in _OF_ALL_QUEUES and seen.status == Forbidden.status
        _check(seen, path, right=leads_on or hidden or seen.status == _SHOWN)
    _open_dry_run(smoke)
    return f"{len(PAGES) + 1} pages"


def _open_dry_run(smoke: Smoke) -> None:
    """Begin a dry run, which changes nothing, and open its page."""
    form = f"/console/queues/{smoke.other}/matching?{urlencode({'worker': smoke.name})}"
    begun = _open(smoke, "POST", form, {"token": smoke.kept["token"], "action": "run"})
    _check(begun, form, right=begun.status == _REDIRECT)
    page = beside.local(smoke, form, begun.headers.get("Location", ""))
    _check(seen := _open(smoke, "GET", page), page, right=seen.status == _SHOWN)


def _open(smoke: Smoke, method: str, path: str, fields: dict[str, str] | None = None) -> Exchange:
    return beside.browse(smoke, method, path, beside.session_cookies(smoke), fields)


def _check(seen: Exchange, path: str, *, right: bool) -> None:
    if not right:
        raise Wrong(f"{path}: the status {seen.status}")
