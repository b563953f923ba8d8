"""The lifecycle table: the moves of the contract and no others, as they are documented."""

from pathlib import Path

from headrace.domain.lifecycle import LIFECYCLE, Action, table
from headrace.domain.task import SHOWN_STATES, State
from tests.unit.domain.test_lifecycle_acts import (
    DEAD,
    DELETED,
    ENQUEUED,
    INFLIGHT,
    SUCCEEDED,
)

ROOT = Path(__file__).parents[3]

# The moves of design 1, section 2, written down a second time.
PROMISED: dict[Action, set[tuple[State | None, State | None]]] = {
    Action.ENQUEUE: {(None, ENQUEUED)},
    Action.OVERWRITE: {(ENQUEUED, ENQUEUED)},
    Action.DEQUEUE: {(ENQUEUED, INFLIGHT)},
    Action.HEARTBEAT: {(INFLIGHT, INFLIGHT)},
    Action.SUCCEED: {(INFLIGHT, SUCCEEDED)},
    Action.FAIL: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.RELEASE: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.MOVE: {(INFLIGHT, ENQUEUED), (ENQUEUED, ENQUEUED), (DEAD, ENQUEUED)},
    Action.RECLAIM: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.EXPIRE: {(ENQUEUED, DEAD)},
    Action.RUN: {(ENQUEUED, ENQUEUED)},
    Action.RESTART: {(DEAD, ENQUEUED), (SUCCEEDED, ENQUEUED)},
    Action.CANCEL: {(ENQUEUED, DEAD), (INFLIGHT, DEAD)},
    Action.DELETE: {*((of, None) for of in State), *((of, DELETED) for of in SHOWN_STATES)},
    Action.PURGE: {*((of, None) for of in State), *((of, DELETED) for of in SHOWN_STATES)},
    Action.UNDELETE: {(DELETED, ENQUEUED), (DELETED, SUCCEEDED), (DELETED, DEAD)},
}


def test_the_table_holds_the_moves_of_the_contract_and_no_others() -> None:
    stated: dict[Action, set[tuple[State | None, State | None]]] = {}
    for row in LIFECYCLE:
        stated.setdefault(row.action, set()).add((row.source, row.target))

    assert stated == PROMISED
    rows = {(row.action, row.source, row.target, row.actor) for row in LIFECYCLE}
    assert len(rows) == len(LIFECYCLE)


# -- what is printed ----------------------------------------------------------------------------


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "lifecycle.md").read_text(encoding="utf-8")

    assert f"\n\n{table()}\n\n" in page
