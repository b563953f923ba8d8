"""Every address of the console, once.

API Gateway puts something before our paths: the stage (``/dev``), a custom domain's base path, or
nothing.  A page's links carry what its own request carried.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

ROOT: Final = "/console"

QUEUES: Final = ROOT
SEARCH: Final = f"{ROOT}/search"
SIGN_IN: Final = f"{ROOT}/sign-in"
SIGN_OUT: Final = f"{ROOT}/sign-out"
STATIC: Final = f"{ROOT}/static/{{name}}"
CREATE_QUEUE: Final = f"{ROOT}/create-queue"
QUEUE: Final = f"{ROOT}/queues/{{queue}}"
PAUSE: Final = f"{QUEUE}/pause"
SNOOZE: Final = f"{QUEUE}/snooze/{{incident}}"
RESUME: Final = f"{QUEUE}/resume"
SELECTED: Final = f"{QUEUE}/selected"
MATCHING: Final = f"{QUEUE}/matching"
SETTINGS: Final = f"{QUEUE}/settings"
PURGE: Final = f"{QUEUE}/purge"
RECOUNT: Final = f"{QUEUE}/recount"
REINDEX: Final = f"{QUEUE}/reindex"
DELETE_QUEUE: Final = f"{QUEUE}/delete"
ACTIVITY: Final = f"{ROOT}/activity"
ACTION: Final = f"{ACTIVITY}/{{id}}"
ERRORS: Final = f"{ROOT}/errors"
UNDO: Final = f"{ROOT}/undo"
TASK: Final = f"{ROOT}/tasks/{{id}}"
TASK_ACTION: Final = f"{TASK}/{{action}}"
ENQUEUE_AS_NEW: Final = f"{TASK}/enqueue"
SCHEDULES: Final = f"{ROOT}/schedules"
CREATE_SCHEDULE: Final = f"{ROOT}/create-schedule"
SCHEDULE: Final = f"{QUEUE}/schedules/{{name}}"
EDIT_SCHEDULE: Final = f"{SCHEDULE}/edit"
SCHEDULE_ACTION: Final = f"{SCHEDULE}/{{action}}"
WORKERS: Final = f"{ROOT}/workers"
WORKER: Final = f"{ROOT}/worker"
WORKER_ACTION: Final = f"{ROOT}/worker/{{action}}"
WORKFLOWS: Final = f"{ROOT}/workflows"
WORKFLOW: Final = f"{WORKFLOWS}/{{id}}"
CANCEL_WORKFLOW: Final = f"{WORKFLOW}/cancel"
RECOUNT_WORKFLOW: Final = f"{WORKFLOW}/recount"
RESTART_STEP: Final = f"{WORKFLOW}/restart"
KEYS: Final = f"{ROOT}/keys"
CREATE_KEY: Final = f"{ROOT}/create-key"
ROTATE_KEY: Final = f"{ROOT}/keys/{{id}}/rotate"
REVOKE_KEY: Final = f"{ROOT}/keys/{{id}}/revoke"
PIPELINES: Final = f"{ROOT}/pipelines"
PROOF: Final = f"{ROOT}/proof"
ELSEWHERE: Final = f"{ROOT}/{{path+}}"


@dataclass(frozen=True, slots=True)
class Urls:
    """The addresses for one request; ``base`` is the path before ``/console``."""

    base: str = ""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Urls":
        """Read the base from an event of API Gateway: the path before its route."""
        context = event["requestContext"]
        names = event.get("pathParameters") or {}
        ours = context["resourcePath"].replace("{path+}", names.get("path", ""))
        whole = unquote(str(context.get("path") or event["path"])).strip("/").split("/")
        base = whole[: max(0, len(whole) - len(ours.strip("/").split("/")))]
        return cls("".join(f"/{part}" for part in base))

    @property
    def root(self) -> str:
        """The path of all pages and cookies."""
        return f"{self.base}{ROOT}"

    def to(self, route: str, /, query: Mapping[str, object] | None = None, **names: str) -> str:
        """Return the address of *route* with *names* in it; empty values of *query* are left out.

        Raises KeyError for a name that is missing.
        """
        path = route.format_map({name: quote(value, safe="") for name, value in names.items()})
        given = [(name, value) for name, value in (query or {}).items() if value not in (None, "")]
        return f"{self.base}{path}{'?' if given else ''}{urlencode(given, doseq=True)}"

    def safe_next(self, wanted: str) -> str:
        """Return *wanted* if it is a page of the console, else the first page."""
        inside = wanted == self.root or wanted.startswith((f"{self.root}/", f"{self.root}?"))
        plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted
        climbs = ".." in unquote(wanted.partition("?")[0]).split("/")
        return wanted if inside and plain and not climbs else self.root
