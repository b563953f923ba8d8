"""A payload that is a call of a task function, as the SDK writes it."""

import re
from typing import Final

_CALL: Final = re.compile(r'\s*\{\s*"task"\s*:\s*"([\w.<>:-]{1,200})"')


def called_function(payload: str | None) -> str:
    """Return the name of the function that *payload* calls; empty where it is no call."""
    found = _CALL.match(payload or "")
    return found[1] if found else ""
