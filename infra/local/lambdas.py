"""What the Lambda runtime does for a handler: finding it, its context, its scheduled events."""

import importlib
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from headrace.http.events import ACCOUNT
from infra.local.engine import PROJECT_ROOT
from infra.local.errors import TemplateInvalid
from infra.local.tables import Function

Event: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Event, "InvocationContext"], Any]
Stopping: TypeAlias = Callable[[], bool]

FUNCTIONS_FOLDER: Final = PROJECT_ROOT / "functions"
_ROOTS: Final = (FUNCTIONS_FOLDER, PROJECT_ROOT)  # of modules: the API's, and the console's


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """The context object of one call.

    When the service stops, the time left is 0, so that a long poll which minds its time ends.
    """

    function: Function
    stopping: Stopping
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    function_version: str = "$LATEST"
    identity: None = None
    client_context: None = None
    _started: float = field(default_factory=time.monotonic)

    @property
    def function_name(self) -> str:
        """Name of the function in the template."""
        return self.function.name

    @property
    def invoked_function_arn(self) -> str:
        """An ARN of the right form, of no account."""
        return f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:{self.function.name}"

    @property
    def memory_limit_in_mb(self) -> str:
        """The template's memory size; text, as in Lambda. Nothing enforces it here."""
        return str(self.function.memory_mb)

    @property
    def log_group_name(self) -> str:
        """Name of the log group it would have."""
        return f"/aws/lambda/{self.function.name}"

    @property
    def log_stream_name(self) -> str:
        """Name of the log stream it would have."""
        return "local"

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the template's timeout; nothing enforces it here."""
        if self.stopping():
            return 0
        left = self.function.timeout_seconds - (time.monotonic() - self._started)
        return max(0, int(left * 1000))


def load_handler(name: str) -> Handler:
    """Import the handler that the template calls `module.function`.

    Its module is in `functions/`, or a folder of the project's own as `console/app`.

    Raises:
        TemplateInvalid: there is no such module or function.
        ImportError: one of its own imports fails.

    """
    for root in reversed(_ROOTS):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    # Lambda writes the folders of a module with slashes.
    path, _, attribute = name.rpartition(".")
    module_name = path.replace("/", ".") or name
    message = f"template.yaml names the handler {name}, which is nowhere."
    try:
        handler = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise TemplateInvalid(message) from error
    if not callable(handler):
        raise TemplateInvalid(message)
    found: Handler = handler
    return found


def scheduled_event(function: Function, now: datetime | None = None) -> Event:
    """Make the event that EventBridge sends for a schedule."""
    at = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": at,
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:{ACCOUNT}:rule/{function.name}"],
        "detail": {},
    }
