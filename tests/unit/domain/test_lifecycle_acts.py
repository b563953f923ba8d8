"""Every act in every state: what the table allows happens, and nothing else.

What happens ends where a row says and puts the clock where the row says; the rest changes nothing.
"""

from collections.abc import Callable
from datetime import datetime

import pytest

from headrace.domain.lifecycle import LIFECYCLE, Action, Actor, Clock, Rule, rules
from headrace.domain.operate import BulkAction
from headrace.domain.task import Place, State, Task
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World
from tests.unit.domain.lifecycle_cases import (
    ANYWHERE,
    BACKOFF,
    DEAD,
    DELAY,
    DELETED,
    ENQUEUED,
    INFLIGHT,
    LATER,
    LEASE,
    SUCCEEDED,
    TOO_LATE,
    LifecycleCase,
    cancel,
    case_in,
    close_its_group,
    close_its_group_too_late,
    delete,
    delete_by_the_service,
    delete_its_queue,
    delete_with_an_undo,
    dequeue,
    enqueue,
    expire,
    fail_for_good,
    operated,
    overwrite,
    purge,
    purge_with_an_undo,
    reclaim,
    reclaim_for_good,
    reported,
    run,
    undelete_what_was,
)

PRODUCER, WORKER, OPERATOR, SERVICE = Actor

# Each act makes one move if it may; by whom, and where it leads if the table allows it at all.
ACTS: list[tuple[Action, Actor, State | None, Callable[[LifecycleCase], None]]] = [
    (Action.ENQUEUE, PRODUCER, ENQUEUED, enqueue),
    (Action.OVERWRITE, PRODUCER, ENQUEUED, overwrite),
    (Action.DEQUEUE, WORKER, INFLIGHT, dequeue),
    (Action.HEARTBEAT, WORKER, INFLIGHT, reported("INFLIGHT")),
    (Action.SUCCEED, WORKER, SUCCEEDED, reported("SUCCEEDED", result="1")),
    (Action.FAIL, WORKER, ENQUEUED, reported("FAILED")),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", retryable=False)),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", delay_in_seconds=TOO_LATE)),
    (Action.FAIL, WORKER, DEAD, fail_for_good),
    (Action.RELEASE, WORKER, ENQUEUED, reported("RELEASED", delay_in_seconds=LATER)),
    (Action.RELEASE, WORKER, DEAD, reported("RELEASED", delay_in_seconds=TOO_LATE)),
    (Action.RELEASE, SERVICE, ENQUEUED, close_its_group),
    (Action.RELEASE, SERVICE, DEAD, close_its_group_too_late),
    (Action.MOVE, WORKER, ENQUEUED, reported("MOVED", to_queue="other", delay_in_seconds=LATER)),
    (Action.MOVE, OPERATOR, ENQUEUED, operated(BulkAction.MOVE, to_queue="other")),
    (Action.RECLAIM, SERVICE, ENQUEUED, reclaim),
    (Action.RECLAIM, SERVICE, DEAD, reclaim_for_good),
    (Action.EXPIRE, SERVICE, DEAD, expire),
    (Action.RUN, OPERATOR, ENQUEUED, run),
    (Action.RESTART, OPERATOR, ENQUEUED, operated(BulkAction.RESTART)),
    (Action.CANCEL, OPERATOR, DEAD, cancel),
    (Action.CANCEL, OPERATOR, DEAD, operated(BulkAction.CANCEL)),
    (Action.DELETE, OPERATOR, None, delete),
    (Action.DELETE, OPERATOR, None, operated(BulkAction.DELETE)),
    (Action.PURGE, OPERATOR, None, purge),
    (Action.DELETE, OPERATOR, DELETED, delete_with_an_undo),
    (Action.DELETE, OPERATOR, DELETED, operated(BulkAction.DELETE, undo_in_seconds=60)),
    (Action.PURGE, OPERATOR, DELETED, purge_with_an_undo),
    (Action.DELETE, SERVICE, None, delete_by_the_service),
    (Action.PURGE, SERVICE, None, delete_its_queue),
    (Action.UNDELETE, OPERATOR, ENQUEUED, undelete_what_was(ENQUEUED)),
    (Action.UNDELETE, OPERATOR, SUCCEEDED, undelete_what_was(SUCCEEDED)),
    (Action.UNDELETE, OPERATOR, DEAD, undelete_what_was(DEAD)),
]


def named(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("action", "actor", "target", "act"), ACTS, ids=named)
def test_what_the_table_allows_happens_and_nothing_else(
    action: Action, actor: Actor, target: State | None, act: Callable[[LifecycleCase], None]
) -> None:
    for source in ANYWHERE:
        for keyed in (False, True):
            happens(SqliteStore(":memory:"), source, action, actor, target, act, keyed=keyed)


def happens(
    store: Store,
    source: State | None,
    action: Action,
    actor: Actor,
    target: State | None,
    act: Callable[[LifecycleCase], None],
    *,
    keyed: bool,
) -> None:
    """Let somebody act on a task in *source* over *store*, and check what came of it."""
    case = case_in(source, keyed=keyed or action is Action.OVERWRITE, store=store)
    before = case.stored

    act(case)

    after = case.stored
    row = _row(action, actor, source, target)
    if row is None:
        extended = action is Action.EXPIRE and source is INFLIGHT
        if action is Action.ENQUEUE and source is DELETED:  # whose id is free
            assert after is not None
            assert (after.state, after.version, after.deleted_by) == (ENQUEUED, 1, None)
        else:
            assert after == before or (extended and after and after.last_move == "heartbeat")
    elif after is None:
        assert target is None
    else:
        assert (after.state, after.last_move) == (target, action)
        by_clock = _time_by(row, before, case.world.clock())
        if action is Action.UNDELETE:  # as it was before, not as it was while nobody saw it
            by_clock = after.due_at if after.state is ENQUEUED else after.finished_at
        assert after.scheduled_at == by_clock
        assert _index_times(case.world, after.place) == [after.scheduled_at]
        assert (after.lease_id is not None) == (after.state is INFLIGHT)


def _row(action: Action, actor: Actor, source: State | None, target: State | None) -> Rule | None:
    found = rules(action, source, actor=actor)
    if not found:
        return None
    (row,) = (row for row in found if row.target is target)
    return row


def _time_by(row: Rule, before: Task | None, now: datetime) -> datetime | None:
    """The new ``scheduled_at`` by the clock of *row*."""
    kept = before.scheduled_at if before else None
    by_operator = row.actor is OPERATOR  # whose move leaves a waiting task its due time
    return {
        Clock.DUE: kept if by_operator else now + DELAY,
        Clock.LEASE_END: now + LEASE,
        Clock.KEPT: kept,
        Clock.BACKOFF: now + BACKOFF,
        Clock.NOW: now,
        Clock.NONE: None,
    }[row.clock]


def _index_times(world: World, place: Place) -> list[datetime]:
    return [entry.scheduled_at for entry in world.store.entries(place, limit=9).entries]


ENDS = [
    (row.source, act)
    for action, actor, target, act in ACTS
    for row in LIFECYCLE
    if (row.action, row.actor, row.target) == (action, actor, target) and row.kept_by
]


def test_without_history_and_dead_letters_the_end_of_a_life_is_gone() -> None:
    for source, act in ENDS:
        ends(SqliteStore(":memory:"), source, act, keyed=True)


def ends(
    store: Store, source: State | None, act: Callable[[LifecycleCase], None], *, keyed: bool
) -> None:
    """Let somebody end a life over *store* where nothing is kept, and check that it is gone."""
    case = case_in(source, keyed=keyed, kept=False, store=store)

    act(case)

    assert case.stored is None


def test_every_row_was_tried() -> None:
    tried = {(action, actor, target) for action, actor, target, _ in ACTS}

    assert {(row.action, row.actor, row.target) for row in LIFECYCLE} == tried
