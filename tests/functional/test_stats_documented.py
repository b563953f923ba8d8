"""Stats and metrics are documented, and the steps of a range cover it."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.history.metrics import POINTS, Steps
from headrace.http.app import RESOLVER
from headrace.http.openapi import document
from tests.manual_clock import ManualClock

instants = st.integers(0, 3 * 86_400).map(
    lambda seconds: ManualClock().time + timedelta(seconds=seconds)
)


@given(instants, instants, st.integers(1, 200))
def test_steps_cover_a_range_and_no_step_begins_behind_it(
    since: Any, until: Any, minutes: int
) -> None:
    if since >= until or (until - since) / timedelta(minutes=minutes) >= POINTS - 1:
        return
    steps = Steps.between(since, until, minutes * 60, until)

    length = timedelta(minutes=minutes)
    assert steps.begin <= since < steps.begin + timedelta(minutes=1)
    assert steps.begin + (steps.count - 1) * length < until <= steps.begin + steps.count * length
    assert len(steps.points([])) == steps.count


def test_both_are_documented() -> None:
    paths = document(RESOLVER)["paths"]

    for what, model in (("stats", "Stats"), ("metrics", "Metrics")):
        operation = paths[f"/v1/queues/{{queue}}/{what}"]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{model}"}
