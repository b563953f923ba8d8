"""Names that are reserved for the service: tasks and members of results that begin so.

The SDK gives some of its own tasks a meaning that no user's data may have. So a payload that names
such a task is refused wherever it comes from, unless the service has written it itself.
"""

import json
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "headrace."
"""Names of tasks and members of results that begin so are reserved."""

SPAWN: Final = "headrace.spawn"
"""The task that spawns what one report has no room for; the service writes its payload."""

RELAY: Final = "headrace.relay"
"""The task that stands for the members of its batch in other batches; likewise."""

RESERVED_TASK: Final = f"must not begin with {PREFIX}: these names are reserved"


def reserved_task(payload: str) -> str | None:
    """Return the reserved name of the task that the JSON text *payload* calls; None for none."""
    if not _may_name(payload):
        return None
    name = _read(payload).get("task")
    return name if isinstance(name, str) and name.startswith(PREFIX) else None


def reserved_member(result: str) -> str | None:
    """Return the first reserved name of a member of the JSON text *result*; None for none."""
    if not _may_name(result):
        return None
    return next((name for name in _read(result) if name.startswith(PREFIX)), None)


def spawn_payload(entries: Iterable[str]) -> str:
    """Return the payload of a task that spawns *entries*, which are JSON texts."""
    return f'{{"task":"{SPAWN}","args":{{"tasks":[{",".join(entries)}]}}}}'


RELAY_PAYLOAD: Final = f'{{"task":"{RELAY}","args":{{}}}}'


def _may_name(text: str) -> bool:
    r"""Return whether *text* may hold the prefix: as it is, or escaped as ``\u0068eadrace.``."""
    return text.lstrip(" \t\n\r").startswith("{") and (PREFIX in text or "\\u" in text)


def _read(text: str) -> dict[str, object]:
    """Return the members of an object; none of one nested so deeply that the SDK cannot read it."""
    try:
        found = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
