"""What a history must not show: one SQL condition for each kind of violation.

Each condition looks at a row of ``changes`` (``headrace.spark.lake.schemas``) and at the change
before it, whose columns are called ``before_…``.  A condition that is null does not hold.  The
lake's proof runs them on Spark, and the simulation of the tests on SQLite: so they use only what
both understand.  What is legal is read from ``headrace.domain.lifecycle`` and nowhere else.
"""

from collections.abc import Iterable
from typing import Final

from headrace.domain.lifecycle import LIFECYCLE, Action, LeaseRule
from headrace.domain.task import FINISHED, State
from headrace.history.changelog import FORGET

GONE: Final = "gone"
REMEMBERED: Final = ("version", "queue_to", "state_to", "attempts_to", "lease_to")
"""The columns of the change before that the conditions use."""


def legal_moves() -> set[tuple[str, str, str]]:
    """Return every (move, from, to) that the lifecycle allows; ``gone`` means no task.

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
