"""Proofs of a history: the conditions that a change must not meet, and the report in the lake.

Each condition is SQL about a row of ``changes`` (``headrace.spark.lake.schemas``) and the change
before it, whose columns are called ``before_…``.  A condition that is null does not hold.  The
lake's proof runs them on Spark and the simulation of the tests on SQLite, so they use only what
both understand.  The legal moves come from ``headrace.domain.lifecycle`` alone.

A report names tasks and queues, and has none of their payloads, results or errors.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.domain.errors import Unavailable
from headrace.domain.lifecycle import LIFECYCLE, Action, LeaseRule
from headrace.domain.task import FINISHED, State
from headrace.history.changelog import FORGET
from headrace.ops.shared.service_part import ServicePart

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_LOOKS_AGAIN: Final = timedelta(minutes=1)

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
    "early_reclaim": "a lease was reclaimed before its end",
    "early_delivery": "delivered before it was due",
    "expired_delivery": "delivered after it had expired",
    "wrong_attempts": "attempts that were not counted as the move says",
    "unexplained_end": "dead without a reason, or finished without a time",
    "overdue": "in flight ten minutes after its lease has ended, or waiting three hours after it "
    "expired",
    "lost": "never ended, and not in the table",
}
"""The kinds of findings, in the words of docs/reference/lake-proof.md."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One change that meets a condition: its task, its version and the details."""

    task_id: str
    created_at: datetime
    version: int
    queue: str
    move: str
    at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class ProofReport:
    """The changes that a proof read, and its findings.

    ``first`` and ``last`` are the times when its changes were recorded, None without changes.
    ``violations`` are numbers by kind, ``examples`` some of each.  ``made_at`` is the time of the
    proof; ``since`` its first day, None for all; ``live`` whether it searched for lost tasks.
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
        """Whether there are no findings."""
        return not self.violations

    def text(self) -> str:
        """Return the report as JSON."""
        body = {"holds": self.holds, **asdict(self)}
        return json.dumps(body, indent=1, default=_plain, ensure_ascii=False)

    @classmethod
    def of(cls, text: bytes) -> "ProofReport":
        """Return the report that text() wrote.  Raises ValueError for other texts."""
        return msgspec.json.decode(text, type=cls)


def _plain(value: object) -> str:
    """Return the text of a date or an instant; one without a zone is local time."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value)


class Proofs(ServicePart):
    """Shows the latest report, if there is a lake."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._found = False
        self._looked_at: datetime | None = None

    def has_run(self) -> bool:
        """Return whether there is a report; without one, look again after a minute."""
        now = self.now()
        if not self._found and (self._looked_at is None or now - self._looked_at >= _LOOKS_AGAIN):
            self._looked_at = now
            lake = self.service.lake
            self._found = lake is not None and lake.get(LATEST) is not None
        return self._found

    def latest(self) -> ProofReport | None:
        """Return the last report; None before the first proof, or without a lake.

        Raises Unavailable.
        """
        text = self.service.lake.get(LATEST) if self.service.lake is not None else None
        if text is None:
            return None
        try:
            return ProofReport.of(text)
        except ValueError as error:
            message = f"the lake's {LATEST} cannot be read; headrace lake proof writes it again"
            raise Unavailable(message) from error


GONE: Final = "gone"
REMEMBERED: Final = ("version", "queue_to", "state_to", "attempts_to", "lease_to")
"""The columns of the change before that the conditions use."""


def legal_moves() -> set[tuple[str, str, str]]:
    """Return every legal (move, from, to); ``gone`` means no task.

    The table may also forget a finished task whose retention is over.
    """
    moves = {(FORGET, str(state), GONE) for state in FINISHED}
    for row in LIFECYCLE:
        source, target = (_shown(state) for state in (row.source, row.target))
        moves.add((str(row.action), source, target))
        if row.kept_by:
            moves.add((str(row.action), source, GONE))
    return moves


def _shown(state: State | None) -> str:
    """Return a state as the lake shows it: a task that an undo can restore counts as gone."""
    return GONE if state in (None, State.DELETED) else str(state)


def moves_by_lease(lease: LeaseRule) -> list[str]:
    """Return the moves that always need *lease*."""
    needing = {row.action for row in LIFECYCLE if row.lease is lease}
    others = {
        row.action for row in LIFECYCLE if row.lease is not lease and row.source is State.INFLIGHT
    }
    return sorted(str(action) for action in needing - others)


def conditions(*, second: str) -> dict[str, str]:
    """Return the condition of each kind of violation; *second* is a second in the SQL's words."""
    legal = _list(" ".join(move) for move in legal_moves())
    reports = _list(set(moves_by_lease(LeaseRule.HELD)) - {Action.HEARTBEAT})
    reclaims = _list(moves_by_lease(LeaseRule.LAPSED))
    new_lives = _list((Action.ENQUEUE, Action.MOVE, Action.RESTART))
    return {
        "illegal_move": f"move || ' ' || coalesce(state_from, '{GONE}') || ' '"
        f" || coalesce(state_to, '{GONE}') NOT IN ({legal})",
        "missing_version": "version > before_version + 1",
        "missing_birth": "before_version IS NULL AND version > 1 AND born_here",
        "forked_version": "version = before_version",
        "broken_chain": "version = before_version + 1 AND ("
        + " OR ".join(
            f"{name}_from IS DISTINCT FROM before_{name}_to"
            for name in ("queue", "state", "attempts", "lease")
        )
        + ")",
        "double_lease": f"move = '{Action.DEQUEUE}' AND before_state_to = '{State.INFLIGHT}'",
        "lease_out_of_place": "(lease_to IS NOT NULL)"
        f" <> coalesce(state_to = '{State.INFLIGHT}', false)",
        "foreign_report": f"move IN ({reports}) AND state_from = '{State.INFLIGHT}'"
        " AND state_to IS NOT NULL AND settled IS DISTINCT FROM lease_from",
        # A removal is known to the second.
        "early_reclaim": f"move IN ({reclaims}) AND lease_end_from"
        f" > CASE WHEN state_to IS NULL THEN at + {second} ELSE at END",
        "early_delivery": f"move = '{Action.DEQUEUE}' AND due_from > at",
        "expired_delivery": f"move = '{Action.DEQUEUE}' AND expires_at <= at",
        # An undo restores the attempts that the task had when it was deleted.
        "wrong_attempts": f"state_to IS NOT NULL AND move <> '{Action.UNDELETE}' AND NOT"
        f" CASE WHEN move IN ({new_lives}) THEN attempts_to = 0"
        f" ELSE attempts_to = coalesce(attempts_from, 0) + CASE move"
        f" WHEN '{Action.DEQUEUE}' THEN 1 WHEN '{Action.RELEASE}' THEN -1 ELSE 0 END END",
        "unexplained_end": f"state_to IN ({_list(FINISHED)}) AND (finished_at IS NULL"
        f" OR (state_to = '{State.DEAD}' AND dead_reason IS NULL))",
    }


def _list(words: Iterable[str]) -> str:
    return ", ".join(sorted(f"'{word}'" for word in words))
