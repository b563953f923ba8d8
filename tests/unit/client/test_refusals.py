"""What the clients refuse by themselves, before anything is sent, naming the field."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import pytest

from headrace import Client, NewTask, Report
from headrace.client.sending import SpawnedTask
from headrace.domain.errors import InvalidRequest, NotEnqueued
from tests.unit.client.network import Network, reply

DONE: Final = {"matched": 0, "changed": 0, "results": [], "cursor": None}
NAIVE: Final = datetime(2026, 1, 1, 8)  # noqa: DTZ001 (that is the point)


def client_on(wire: Network) -> Client:
    return Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep)


# ------------------------------------------------------------------------------- many at once


@pytest.mark.parametrize(
    ("meant", "field", "text"),
    [
        ({"ids": ["t1"], "state": "dead"}, "ids", "ids and filters or all exclude each other"),
        ({"ids": ["t1"], "all": True}, "ids", "ids and filters or all exclude each other"),
        ({"all": True, "state": "dead"}, "filter", "filter and all exclude each other"),
        ({}, "filter", "filter is missing: name ids or filters, or say all=True"),
        ({"ids": "abc"}, "ids", "ids must be a list of ids, not one text"),
        ({"state": None}, "filter", "filter must not be None in every field"),
    ],
)
def test_a_bulk_action_takes_exactly_one_of_ids_filters_and_all(
    meant: Any, field: str, text: str
) -> None:
    wire = Network([reply(200, DONE)])

    with pytest.raises(InvalidRequest) as refused:
        client_on(wire).move_tasks("mail", "later", **meant)

    assert refused.value.detail.startswith(text)
    assert [one.field for one in refused.value.errors] == [field]
    assert not wire.requests


# ------------------------------------------------------------------------------------ instants


CALLS: Final[dict[str, tuple[str, Callable[[Client, datetime], object]]]] = {
    "get_metrics from_": ("from", lambda client, at: client.get_metrics("mail", from_=at)),
    "delete_tasks": (
        "scheduled_before",
        lambda client, at: client.delete_tasks("mail", scheduled_before=at),
    ),
    "enqueue_many": (
        "tasks[1].expires_at",
        lambda client, at: client.enqueue_many("mail", [NewTask(), NewTask(expires_at=at)]),
    ),
    "report": (
        "reports[0].spawn[0].scheduled_at",
        lambda client, at: client.report("mail", [spawning(at)]),
    ),
}


def spawning(at: datetime) -> Report:
    child = SpawnedTask(queue="mail", scheduled_at=at)
    return Report(task_id="t1", lease_id="l", status="SUCCEEDED", spawn=[child])


@pytest.mark.parametrize(("field", "call"), CALLS.values(), ids=CALLS)
def test_an_instant_without_a_zone_is_refused_naming_the_field(
    field: str, call: Callable[[Client, datetime], object]
) -> None:
    wire = Network([reply(200, {})])

    with pytest.raises(InvalidRequest) as refused:
        call(client_on(wire), NAIVE)

    (named,) = refused.value.errors
    assert named.field == field
    assert "2026-01-01T08:00:00 has none" in named.message
    assert refused.value.detail == f"{field} {named.message}"
    assert not wire.requests


def came_out(*outcomes: str) -> Any:
    results = [
        {"outcome": outcome, "id": f"t{place}", "task": None, "queue": None, "detail": "too late"}
        for place, outcome in enumerate(outcomes)
    ]
    return reply(200, {"results": results})


def test_an_enqueue_that_comes_out_invalid_raises_naming_the_entry() -> None:
    client = client_on(Network([came_out("INVALID")]))

    with pytest.raises(NotEnqueued) as one:
        client.enqueue("mail", 1)
    with pytest.raises(NotEnqueued):
        client.run_schedule("mail", "daily")

    assert isinstance(one.value, InvalidRequest)
    assert (one.value.code, one.value.detail) == (
        "not_enqueued",
        "task was not enqueued: too late",
    )


def test_many_are_all_sent_before_the_invalid_ones_are_raised_with_all_results() -> None:
    full = came_out(*["CREATED"] * 24, "INVALID")
    wire = Network([full, came_out("INVALID", "CREATED")])

    with pytest.raises(NotEnqueued) as raised:
        client_on(wire).enqueue_many("mail", [NewTask()] * 27)

    assert [named.field for named in raised.value.errors] == ["tasks[24]", "tasks[25]"]
    assert raised.value.detail == "tasks[24] was not enqueued: too late, and 1 more"
    assert [result.outcome for result in raised.value.results].count("CREATED") == 25
