"""The option ``bad_rows`` of a write: what happens to rows that cannot be carried out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from headrace.domain.limits import NAME_RE, PAYLOAD_BYTES, pattern_fault, utf8_bytes
from headrace.domain.plan import TaskSpec

_CUT: Final = 1_000  # characters of a value, where a row is too large for a payload


@dataclass(frozen=True, slots=True)
class BadRows:
    """The write fails when the good rows are in, or they are dropped, or go to a queue."""

    fails: bool = False
    queue: str | None = None


FAIL: Final = BadRows(fails=True)
DROP: Final = BadRows()


def bad_rows(text: str) -> BadRows:
    """Parse fail, drop or dead:QUEUE.  Raises ValueError with the limit."""
    word, colon, queue = text.partition(":")
    if word.lower() == "dead" and colon:
        if fault := pattern_fault(queue, NAME_RE):
            message = f"names a queue that {fault}"
            raise ValueError(message)
        return BadRows(queue=queue)
    known = {"fail": FAIL, "drop": DROP}.get(text.lower())
    if known is None:
        message = f"must be fail, drop or dead:QUEUE, not {text!r}"
        raise ValueError(message)
    return known


def dead_letter(row: Mapping[str, Any], reason: str) -> TaskSpec:
    """Return the task that tells of a bad row, always the same one: its values, and the reason."""
    payload = _payload(row, reason)
    digest = blake2b(payload.encode(), digest_size=16).hexdigest()
    return TaskSpec(payload, id=f"bad-{digest}")


def _payload(row: Mapping[str, Any], reason: str) -> str:
    text = _dumped({"error": reason, "row": dict(row)})
    if utf8_bytes(text) <= PAYLOAD_BYTES:
        return text
    cut = {name: _dumped(value)[:_CUT] for name, value in row.items()}
    return _dumped({"error": reason[:_CUT], "row": cut, "cut": True})


def _dumped(value: object) -> str:
    return json.dumps(value, default=_plain, separators=(",", ":"), sort_keys=True)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
