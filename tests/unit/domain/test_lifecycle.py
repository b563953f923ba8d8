"""The lifecycle table: the moves of the contract and no others, as they are documented."""

from pathlib import Path

from headrace.domain.access import Permission, Role, may
from headrace.domain.lifecycle import (
    LIFECYCLE,
    Action,
    Actor,
    LeaseRule,
    diagram,
    table,
)
from headrace.domain.task import SHOWN_STATES, State
from headrace.http.permissions import NEEDS
from tests.unit.domain.lifecycle_cases import DEAD, DELETED, ENQUEUED, INFLIGHT, SUCCEEDED

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
