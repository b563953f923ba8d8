"""Fingerprints: similar errors share one.

A fingerprint is a hash of type and message without addresses, hosts, ids, numbers and quoted texts.
The console groups errors by it.  Spark computes the same fingerprint from ``BLANKS``, for the
lake's table of failures.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from headrace.domain.task import State, Task

MESSAGE: Final = 1024
"""The lake keeps this many characters of a message, so the fingerprint uses no more."""

LENGTH: Final = 16
FINGERPRINT_RE: Final = re.compile(rf"[0-9a-f]{{{LENGTH}}}", re.ASCII)

# Where a word begins and ends, as Python's ASCII has it; \b of Java 17 knows other alphabets.
_BEGIN: Final = r"(?<![0-9a-z_])"
_END: Final = r"(?![0-9a-z_])"
_TOP: Final = "com|net|org|io|dev|app|cloud|edu|gov|eu|local|localdomain|internal|lan|invalid"
BLANKS: Final = (
    (r"'[^']*'|\"[^\"]*\"|`[^`]*`", "?"),
    (_BEGIN + r"[a-z][0-9a-z+.-]*://[^\s,;)>]+", "?"),
    (r"(?<![0-9a-z._%+-])[0-9a-z._%+-]+@[0-9a-z.-]*[0-9a-z]", "?"),
    (_BEGIN + rf"([0-9a-z-]+\.)+({_TOP}){_END}", "?"),
    (_BEGIN + r"[0-9a-f]{1,4}(:[0-9a-f]{0,4}){2,7}" + _END, "?"),
    (_BEGIN + r"(tsk|lse|lsg|rpl|bat|wfl|act)_[0-9a-z_]+", "?"),
    (_BEGIN + r"[a-z]{2,8}_(?=[0-9a-z]*[0-9])[0-9a-z]{8,}" + _END, "?"),
    (_BEGIN + r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}" + _END, "?"),
    (_BEGIN + r"(0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{6,}" + _END, "?"),
    (r"[0-9]+([.,:][0-9]+)*", "?"),
    (r"\s+", " "),
)
"""Patterns to replace in a message in lower case, in order.

They are quotes, addresses of the web and of mail, hosts, IPv6, ids, hex, numbers and space.
Expressions mean the same to Python (ASCII) and to Java.
"""

_BLANKS: Final = tuple((re.compile(pattern, re.ASCII), blank) for pattern, blank in BLANKS)


_SHOWN: Final = tuple(
    (re.compile(pattern, re.ASCII | re.IGNORECASE), "…" if blank == "?" else blank)
    for pattern, blank in BLANKS
)


def blanked(message: str) -> str:
    """Return *message* as a group of errors shows it: with … for what differs between tasks."""
    for pattern, blank in _SHOWN:
        message = pattern.sub(blank, message)
    return message.strip(" ")


def fingerprint(kind: str, message: str) -> str:
    """Return the fingerprint that similar errors share: 16 hex digits."""
    return _fingerprint(kind, message[:MESSAGE])


@lru_cache(512)
def _fingerprint(kind: str, message: str) -> str:
    text = message.lower()
    for pattern, blank in _BLANKS:
        text = pattern.sub(blank, text)
    whole = f"{kind}\n{text.strip(' ')}"
    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def fingerprint_of(task: Task) -> str:
    """Return the fingerprint of the latest error of *task*."""
    return fingerprint(*fault_of(task))


_TRIED_BEFORE: Final = {State.ENQUEUED: 0, State.INFLIGHT: 1}


def is_error_current(state: State, attempts: int, *, cancelled: bool) -> bool:
    """Return whether the latest error of a task ended it, or caused the retry that it waits for.

    A restart or a move begins a new life; errors before it are no longer current.
    """
    if state is State.DEAD:
        return not cancelled
    before = _TRIED_BEFORE.get(state)
    return before is not None and attempts > before


def fault_of(task: Task) -> tuple[str, str]:
    """Return type and message of the latest error; without errors, the reason of the death."""
    if not task.errors:
        return "", str(task.dead_reason or "")
    latest = task.errors[-1]
    return latest.type, latest.message


def current_fingerprint_of(task: Task) -> str | None:
    """Return the fingerprint of the current error of *task*, or None."""
    stands = is_error_current(task.state, task.attempts, cancelled=task.cancelled)
    return fingerprint_of(task) if stands else None
