"""The report of a proof as the lake keeps it: what was looked at, and what should not be there.

It names tasks and queues and holds nothing that a task carries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.store.base import Lake

REPORTS: Final = "reports/proof"
"""The folder of the lake where reports are."""

LATEST: Final = f"{REPORTS}/latest.json"

FINDINGS: Final[Mapping[str, str]] = {
    "illegal_move": "a move that the lifecycle has no row for",
    "missing_version": "a change between two others is not there",
    "missing_birth": "a task born since the lake begins, whose first changes are not there",
    "forked_version": "two different changes claim one version",
    "broken_chain": "a change began elsewhere than the one before had ended: queue, state, "
    "attempts or lease",
    "double_lease": "a task was delivered while another delivery held it",
    "reused_lease": "one lease was granted for two deliveries",
    "lease_out_of_place": "in flight without a lease, or a lease while not in flight",
    "foreign_report": "a report took effect that did not hold the lease",
    "early_reclaim": "a lease was taken back before its end",
    "early_delivery": "delivered before it was due",
    "expired_delivery": "delivered after it had expired",
    "wrong_attempts": "attempts that were not counted as the move says",
    "unexplained_end": "dead without a reason, or finished without a time",
    "overdue": "in flight ten minutes after its lease has ended, or waiting three hours after it "
    "expired",
    "lost": "never ended, and not in the table",
}
"""What a proof looks for, in the words of docs/lake.md."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One change that should not be: of which task, which version, and what was seen."""

    task_id: str
    created_at: datetime
    version: int
    queue: str
    move: str
    at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class ProofReport:
    """What a proof looked at and found.

    ``first`` and ``last`` are when the changes it saw were recorded, None where there was none.
    ``violations`` are numbers by kind, ``examples`` some of each.  ``made_at`` is when the proof
    ran, None where it was not told; ``since`` the first day it was asked for, None for all;
    ``live`` whether lost tasks were looked for.
    """

    first: datetime | None
    last: datetime | None
    tasks: int
    changes: int
    violations: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    made_at: datetime | None = None
    since: date | None = None
    live: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.violations

    def text(self) -> str:
        """Return it as JSON."""
        body = {"holds": self.holds, **asdict(self)}
        return json.dumps(body, indent=1, default=_plain, ensure_ascii=False)

    @classmethod
    def of(cls, text: bytes) -> "ProofReport":
        """Read what a proof has written.  Raises ValueError for anything else."""
        try:
            return _read(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            message = f"this is no report of a proof: {error!r}"
            raise ValueError(message) from error


def _read(body: Mapping[str, Any]) -> ProofReport:
    since = body.get("since")
    return ProofReport(
        made_at=_instant(body.get("made_at")),
        since=None if since is None else date.fromisoformat(since),
        live=bool(body.get("live")),
        first=_instant(body["first"]),
        last=_instant(body["last"]),
        tasks=int(body["tasks"]),
        changes=int(body["changes"]),
        violations={str(kind): int(number) for kind, number in body["violations"].items()},
        examples={kind: tuple(map(_finding, some)) for kind, some in body["examples"].items()},
    )


def _finding(body: Mapping[str, Any]) -> Finding:
    return Finding(
        str(body["task_id"]),
        datetime.fromisoformat(body["created_at"]),
        int(body["version"]),
        str(body["queue"] or ""),
        str(body["move"] or ""),
        datetime.fromisoformat(body["at"]),
        str(body["detail"] or ""),
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _plain(value: object) -> str:
    """Return the text of what JSON does not know; an instant without a zone is local time."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value)


@dataclass(frozen=True, slots=True)
class Proofs:
    """The use case; ``lake`` is None where there is none."""

    lake: Lake | None

    def latest(self) -> ProofReport | None:
        """Return the last report; None before the first proof, or without a lake.

        Raises Unavailable.
        """
        text = self.lake.get(LATEST) if self.lake is not None else None
        if text is None:
            return None
        try:
            return ProofReport.of(text)
        except ValueError as error:
            message = f"the lake's {LATEST} cannot be read; headrace lake proof writes it anew"
            raise Unavailable(message) from error
