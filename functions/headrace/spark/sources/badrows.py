"""Invalid rows of a write: what happens to them by the option ``bad_rows``, and their summary."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from headrace.domain.limits import NAME_RE, PAYLOAD_BYTES, pattern_fault, utf8_bytes
from headrace.domain.plan import TaskSpec

EXAMPLES: Final = 20
_OTHER: Final = "other reasons"
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


@dataclass(slots=True)
class EnqueueSummary(WriterCommitMessage):
    """The numbers of rows by outcome, and the first invalid rows with their reasons.

    ``differing`` is the number of existing tasks whose payload differs from their row; ``reasons``
    counts the invalid rows by reason.  Rows that Spark sends twice are counted twice.
    """

    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    differing: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def refuse(self, name: str, reason: str) -> None:
        """Count an invalid row."""
        self.counts["bad"] += 1
        self.reasons[
            reason if reason in self.reasons or len(self.reasons) < EXAMPLES else _OTHER
        ] += 1
        if len(self.bad) < EXAMPLES:
            self.bad.append(f"{name}: {reason}")

    def outcomes(self) -> str:
        """Return the numbers of rows by outcome, for people."""
        counts = sorted(self.counts.items())
        return ", ".join(f"{number:,} {outcome}" for outcome, number in counts) or "none"

    def refusal(self) -> str:
        """Return the sentence that names the first invalid rows."""
        number, total = self.counts["bad"], sum(self.counts.values())
        rest = f"; and {number - len(self.bad):,} more" if number > len(self.bad) else ""
        found = "; ".join(self.bad)
        return f"{number:,} of {total:,} rows are invalid, the others are enqueued: {found}{rest}"

    def merge(self, other: "EnqueueSummary") -> None:
        """Add the numbers of another part of the job."""
        self.counts += other.counts
        self.differing += other.differing
        self.reasons += other.reasons
        self.bad += other.bad[: EXAMPLES - len(self.bad)]


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
