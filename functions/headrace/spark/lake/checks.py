"""What a history must not show: one expression for each, over a change and the one before it.

What is legal is read from ``headrace.domain.lifecycle`` and nowhere else.  The columns are those of
``changes``; those of the change before are called ``before_…``.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from headrace.domain.lifecycle import LIFECYCLE, Action, LeaseRule
from headrace.domain.task import FINISHED, State
from headrace.history.changelog import FORGET

GONE: Final = "gone"
REMEMBERED: Final = (
    "version",
    "queue_to",
    "state_to",
    "attempts_to",
    "lease_to",
)
"""What a check asks of the change before."""


def legal_moves() -> set[tuple[str, str, str]]:
    """Return every (move, from, to) that the table allows; ``gone`` is not there, before or after.

    The table's own broom is no row of it: it takes what is finished, and nothing else.
    """
    moves = {(FORGET, str(state), GONE) for state in FINISHED}
    for row in LIFECYCLE:
        source, target = (_shown(state) for state in (row.source, row.target))
        moves.add((str(row.action), str(source), str(target)))
        if row.kept_by:
            moves.add((str(row.action), str(source), GONE))
    return moves


def _shown(state: State | None) -> str:
    """Return a state as the lake shows it: what an undo keeps is as gone as all else."""
    return GONE if state in (None, State.DELETED) else str(state)


def by_lease(lease: LeaseRule) -> list[str]:
    """Return the moves that always ask *lease* of the task."""
    asking = {row.action for row in LIFECYCLE if row.lease is lease}
    others = {row.action for row in LIFECYCLE if row.lease is not lease and _held(row.source)}
    return sorted(str(action) for action in asking - others)


def _held(source: State | None) -> bool:
    return source is State.INFLIGHT


def _moved(*actions: Action) -> Column:
    return f.col("move").isin([str(action) for action in actions])


def _differs(name: str) -> Column:
    return ~f.col(f"{name}_from").eqNullSafe(f.col(f"before_{name}_to"))


def checks() -> dict[str, Column]:
    """Return for each kind of violation when a change is one."""
    legal = [" ".join(move) for move in sorted(legal_moves())]
    state_from, state_to = f.col("state_from"), f.col("state_to")
    move = f.concat_ws(
        " ", "move", f.coalesce(state_from, f.lit(GONE)), f.coalesce(state_to, f.lit(GONE))
    )
    known = f.col("before_version").isNotNull()
    follows = known & (f.col("version") == f.col("before_version") + 1)
    inflight = f.coalesce(state_to == str(State.INFLIGHT), f.expr("false"))
    finished = f.coalesce(state_to.isin([str(state) for state in FINISHED]), f.expr("false"))
    reports = [name for name in by_lease(LeaseRule.HELD) if name != Action.HEARTBEAT]
    taken = _moved(Action.DEQUEUE)
    return {
        "illegal_move": ~move.isin(legal),
        "missing_version": known & (f.col("version") > f.col("before_version") + 1),
        "missing_birth": ~known & (f.col("version") > 1) & f.col("born_here"),
        "forked_version": known & (f.col("version") == f.col("before_version")),
        "broken_chain": follows
        & (_differs("queue") | _differs("state") | _differs("attempts") | _differs("lease")),
        "double_lease": taken & f.coalesce(f.col("before_state_to") == "INFLIGHT", f.expr("false")),
        "lease_out_of_place": f.col("lease_to").isNotNull() != inflight,
        "foreign_report": f.col("move").isin(reports)
        & (state_from == str(State.INFLIGHT))
        & state_to.isNotNull()
        & ~f.col("settled").eqNullSafe(f.col("lease_from")),
        "early_reclaim": f.col("move").isin(by_lease(LeaseRule.LAPSED))
        & (f.col("lease_end_from") > _surely("at")),
        "early_delivery": taken & (f.col("due_from") > f.col("at")),
        "expired_delivery": taken & (f.col("expires_at") <= f.col("at")),
        "wrong_attempts": state_to.isNotNull() & ~_counted_right(),
        "unexplained_end": finished
        & (
            f.col("finished_at").isNull()
            | ((state_to == str(State.DEAD)) & f.col("dead_reason").isNull())
        ),
    }


def _surely(instant: str) -> Column:
    """Return the latest that a change can have been made: a removal is known to the second."""
    second = f.expr(f"{instant} + INTERVAL 1 SECOND")
    return f.when(f.col("state_to").isNull(), second).otherwise(f.col(instant))


def _counted_right() -> Column:
    before, after = f.coalesce("attempts_from", f.lit(0)), f.col("attempts_to")
    fresh = _moved(Action.ENQUEUE, Action.MOVE, Action.RESTART)
    step = f.when(_moved(Action.DEQUEUE), 1).when(_moved(Action.RELEASE), -1).otherwise(0)
    kept = f.when(fresh, after == 0).otherwise(after == before + step)
    return _moved(Action.UNDELETE) | kept  # as it was before the change that deleted it
