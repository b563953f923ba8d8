"""Every page of the console, from the routes of its app: a new page needs no entry here."""

import re
from dataclasses import dataclass
from typing import Final

from console.app import app
from tests.browser.fixtures import WIDE, Fixtures

_NO_PAGES: Final = ("/console/static/{name}", "/console/search")
_ACTIONS: Final = {"tasks": ("restart", "move", "delete"), "queues": ("run", "resume", "delete")}


@dataclass(frozen=True, slots=True)
class Names:
    """Names of existing things, for the parameters of addresses; all belong to *queue*."""

    queue: str
    task: str  #: a dead one
    schedule: str  #: a paused one
    key: str
    set: str  #: a dry run
    batch: str
    action: str = ""  #: one that the service did


def names_of(fixtures: Fixtures, seen: str, done: str) -> Names:
    """Names of the fixtures, of the dry run that was *seen*, and of an action that was *done*."""
    return Names("mail", fixtures.dead, "digest", fixtures.viewer.id, seen, "night", done)


def pages(names: Names) -> dict[str, str]:
    """Return the address of each page by a name for it.

    Raises KeyError for a page with a parameter that is not in *names*.
    """
    found = {}
    ids = {"keys": names.key, "workflows": names.batch, "activity": names.action}
    for route, methods in app.routes.items():
        if "GET" not in methods or route in _NO_PAGES:
            continue
        kind = [*route.split("/"), ""][2]
        given = {
            "queue": names.queue,
            "id": ids.get(kind, names.task),
            "name": names.schedule,
            "path": "no/such/page",
            "incident": "failing",
        }
        for action in _ACTIONS.get(kind, ()) if "{action}" in route else ("",):
            path = route.replace("+}", "}").format(**given, action=action)
            words = re.findall(r"[\w-]+", route.removeprefix("/console"))
            name = "-".join(action if word == "action" else word for word in words)
            found[name or "all"] = path
    return {**found, "dry-run": f"/console/activity/{names.set}"}


def states(fixtures: Fixtures) -> dict[str, str]:
    """Return pages in states that are not the ordinary one."""
    return {
        "all-none": "/console?q=name:zzz",
        "queue-dead": "/console/queues/mail?state=DEAD",
        "search-found": f"/console/search?q={fixtures.dead[:20]}",
        "search-left": "/console/search?q=tag:tenant%3Dacme",
        "search-wrong": "/console/search?q=tag:tenant",
        "queue-searched": "/console/queues/mail?q=state:dead+error:smtp+attempts:1",
        "queue-filtered": "/console/queues/mail?state=DEAD&q=error:smtp&limit=25",
        "queue-nothing-fits": "/console/queues/mail?state=DEAD&error=nothing-like-it",
        "queue-wrong": "/console/queues/mail?q=attempts:apples",
        "queue-empty": "/console/queues/empty",
        "queue-busy": "/console/queues/ngsi.notify?state=SUCCEEDED&limit=100",
        "queue-paused": "/console/queues/billing.invoices?state=SCHEDULED",
        "queue-settings": "/console/queues/mail?tab=settings",
        "queue-schedules": "/console/queues/mail?tab=schedules",
        "queue-repair": "/console/queues/mail?tab=repair",
        "queue-wide": f"/console/queues/{WIDE}",
        "task-waiting": f"/console/tasks/{fixtures.waiting}",
        "task-inflight": f"/console/tasks/{fixtures.inflight}",
        "task-succeeded": f"/console/tasks/{fixtures.succeeded}",
        "task-evil": f"/console/tasks/{fixtures.evil}",
        "task-right-to-left": f"/console/tasks/{fixtures.right_to_left}",
        "task-large": f"/console/tasks/{fixtures.large}",
        "worker-busy": "/console/worker?name=worker-1.eu-south-2%3A4711",
        "worker-asked": "/console/worker/stop?name=worker-1.eu-south-2%3A4711",
        "workers-of-none": "/console/workers?q=queue:thumbnails",
        "workers-searched": "/console/workers?q=queue:mail+worker",
        "keys-searched": "/console/keys?q=role:viewer&sort=-created",
        "audit-wrong": "/console/activity?q=acton:pause",
        "task-missing": "/console/tasks/tsk_nobody",
    }
