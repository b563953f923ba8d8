"""The lifecycle table: the moves of the contract and no others, as they are documented."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.domain.access import Permission, Role, may
from headrace.domain.lifecycle import (
    LIFECYCLE,
    Action,
    Actor,
    Clock,
    LeaseRule,
    diagram,
    rule,
    rules,
    table,
)
from headrace.domain.task import SHOWN_STATES, State
from headrace.http.permissions import NEEDS
from tests.unit.domain.lifecycle_cases import ANYWHERE, DEAD, DELETED, ENQUEUED, INFLIGHT, SUCCEEDED

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


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("source", ANYWHERE, ids=str)
def test_the_table_names_its_rows_and_refuses_the_rest(
    action: Action, source: State | None
) -> None:
    targets = {to for come_from, to in PROMISED[action] if come_from == source}

    assert {row.target for row in rules(action, source)} == targets
    for target in ANYWHERE:
        if target in targets:
            assert rule(action, source, target) in LIFECYCLE
        else:
            with pytest.raises(LookupError, match=str(action)):
                rule(action, source, target)


def test_only_workers_move_what_is_in_flight_and_only_under_their_lease() -> None:
    for row in LIFECYCLE:
        if row.source is INFLIGHT and row.actor is Actor.WORKER:
            assert row.lease is LeaseRule.HELD
        elif row.source is INFLIGHT and row.actor is Actor.SERVICE:
            closed = row.action is Action.RELEASE
            assert row.lease is (LeaseRule.CLOSED if closed else LeaseRule.LAPSED)
        else:
            assert row.lease is (
                LeaseRule.TAKEN if row.action is Action.DEQUEUE else LeaseRule.NONE
            )


def test_each_row_puts_the_clock_where_its_target_needs_attention_next() -> None:
    meaning = {
        ENQUEUED: {Clock.DUE, Clock.BACKOFF, Clock.NOW},
        INFLIGHT: {Clock.LEASE_END, Clock.KEPT},
        SUCCEEDED: {Clock.NOW, Clock.KEPT},
        DEAD: {Clock.NOW, Clock.KEPT},
        DELETED: {Clock.NOW},
        None: {Clock.NONE},
    }
    assert all(row.clock in meaning[row.target] for row in LIFECYCLE)


def test_every_end_of_a_life_has_the_setting_that_keeps_it() -> None:
    kept = {SUCCEEDED: "history_retention_in_seconds", DEAD: "dead_letter_queue_config"}

    for row in LIFECYCLE:
        if row.action is Action.UNDELETE:  # what is past its retention does not come back
            continue
        assert row.kept_by == (kept.get(row.target) if row.target else None)


ROUTES = {
    Action.ENQUEUE: "POST /v1/queues/{queue}/tasks",
    Action.OVERWRITE: "POST /v1/queues/{queue}/tasks",
    Action.DEQUEUE: "POST /v1/queues/{queue}/dequeue",
    Action.HEARTBEAT: "POST /v1/queues/{queue}/reports",
    Action.SUCCEED: "POST /v1/queues/{queue}/reports",
    Action.FAIL: "POST /v1/queues/{queue}/reports",
    Action.RELEASE: "POST /v1/queues/{queue}/reports",
    Action.MOVE: "POST /v1/queues/{queue}/tasks/move",
    Action.RUN: "POST /v1/queues/{queue}/tasks/run",
    Action.RESTART: "POST /v1/queues/{queue}/tasks/restart",
    Action.CANCEL: "POST /v1/tasks/{id}/cancel",
    Action.DELETE: "DELETE /v1/tasks/{id}",
    Action.PURGE: "POST /v1/queues/{queue}/purge",
    Action.UNDELETE: "POST /v1/undos/{id}",
}
ASKS = {
    Actor.PRODUCER: Permission.ENQUEUE,
    Actor.WORKER: Permission.WORK,
    Actor.OPERATOR: Permission.OPERATE,
}


def test_the_page_says_who_may_ask_for_a_transition_as_the_api_does() -> None:
    for row in LIFECYCLE:
        if row.asked_by is Actor.SERVICE:
            continue
        reported = row.action is Action.MOVE and row.source is INFLIGHT
        route = ROUTES[Action.SUCCEED if reported else row.action]
        assert NEEDS[route].roles() == list(by_role(ASKS[row.asked_by])), row


def by_role(permission: Permission) -> tuple[Role, ...]:
    return tuple(role for role in Role if may(role, permission))


# -- what is printed ----------------------------------------------------------------------------


def test_the_documentation_shows_the_diagram_and_the_table() -> None:
    page = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")

    assert f"\n```mermaid\n{diagram()}\n```\n" in page
    assert f"\n\n{table()}\n\n" in page


def test_the_module_prints_what_the_documentation_shows() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "headrace.domain.lifecycle"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "functions")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout == f"{diagram()}\n\n{table()}\n"
