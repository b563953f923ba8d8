"""Which errors are the same fault: type and message without what is particular to one task.

The one place that knows.  Errors alike share a fingerprint, in the console's groups and filters and
in the lake's table of failures, where Spark works with the same ``BLANKS``.
"""

import re
from hashlib import sha256
from typing import Final

from headrace.domain.task import Task

MESSAGE: Final = 1024
"""Characters of an error's message that the lake keeps, so only they count."""

LENGTH: Final = 16
FINGERPRINT_RE: Final = re.compile(rf"[0-9a-f]{{{LENGTH}}}", re.ASCII)

# Where a word begins and ends, as Python's ASCII has it; \b of Java 17 knows other alphabets.
_BEGIN: Final = r"(?<![0-9a-z_])"
_END: Final = r"(?![0-9a-z_])"
BLANKS: Final = (
    (r"'[^']*'|\"[^\"]*\"|`[^`]*`", "?"),
    (_BEGIN + r"(tsk|lse|lsg|rpl)_[0-9a-z_]+", "?"),
    (_BEGIN + r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}" + _END, "?"),
    (_BEGIN + r"(0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{6,}" + _END, "?"),
    (r"[0-9]+([.,:][0-9]+)*", "?"),
    (r"\s+", " "),
)
"""What is taken out of a message in lower case, in order: quoted texts, ids, hex, numbers, space.

Expressions mean the same to Python (ASCII) and to Java.
"""

_BLANKS: Final = tuple((re.compile(pattern, re.ASCII), blank) for pattern, blank in BLANKS)


def fingerprint(kind: str, message: str) -> str:
    """Return the fingerprint that similar errors share: 16 hex digits."""
    text = message[:MESSAGE].lower()
    for pattern, blank in _BLANKS:
        text = pattern.sub(blank, text)
    whole = f"{kind}\n{text.strip(' ')}"
    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def fingerprint_of(task: Task) -> str:
    """Return the fingerprint of what *task* died or last failed of."""
    return fingerprint(*fault_of(task))


def fault_of(task: Task) -> tuple[str, str]:
    """Return type and message of the latest error; where there is none, why the task is dead."""
    if not task.errors:
        return "", str(task.dead_reason or "")
    latest = task.errors[-1]
    return latest.type, latest.message
