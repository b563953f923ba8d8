"""The alarms of template.yaml: each tells somebody, looks at this stack, and at what there is."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from headrace.domain.transitions import Event
from headrace.runtime.metrics import NAMESPACE, of_dispatcher, of_reaper, of_recorder
from infra.template import Template

SECONDS_BY_RATE: Final = {"rate(1 minute)": 60}


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    return {
        name: resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


@pytest.fixture
def alarms(template: Template) -> dict[str, dict[str, Any]]:
    return of_type(template, "AWS::CloudWatch::Alarm")


def metrics(alarm: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find what an alarm looks at, each with its ``Period`` and ``Stat``."""
    if "MetricName" in alarm:
        yield {**alarm, "Stat": alarm["Statistic"]}
    for one in alarm.get("Metrics", ()):
        if "MetricStat" in one:
            yield {**one["MetricStat"]["Metric"], **one["MetricStat"]}


def values(metric: dict[str, Any], dimension: str) -> list[str]:
    """Return the resources that it names by *dimension*."""
    found = (one["Value"] for one in metric["Dimensions"] if one["Name"] == dimension)
    return [next(iter(value.values())) if isinstance(value, dict) else value for value in found]


@pytest.mark.parametrize(
    ("alarm", "metric"), [("FunctionErrors", "Errors"), ("FunctionThrottles", "Throttles")]
)
def test_no_function_is_left_out(
    template: Template, alarms: dict[str, dict[str, Any]], alarm: str, metric: str
) -> None:
    functions = of_type(template, "AWS::Serverless::Function")
    looked_at = list(metrics(alarms[alarm]))

    assert {one["MetricName"] for one in looked_at} == {metric}
    assert sorted(name for one in looked_at for name in values(one, "FunctionName")) == sorted(
        functions
    )
    assert alarms[alarm]["Metrics"][0]["Expression"] == "SUM(METRICS())"


def test_no_table_and_no_index_is_left_out(
    template: Template, alarms: dict[str, dict[str, Any]]
) -> None:
    wanted = set[tuple[str, str | None, str]]()
    for name, table in of_type(template, "AWS::DynamoDB::Table").items():
        indexes = [one["IndexName"] for one in table.get("GlobalSecondaryIndexes", ())]
        for index in (None, *indexes):
            for way in ("Read", "Write"):
                wanted.add((name, index, f"{way}ThrottleEvents"))

    assert wanted == {
        (
            values(one, "TableName")[0],
            next(iter(values(one, "GlobalSecondaryIndexName")), None),
            one["MetricName"],
        )
        for one in metrics(alarms["TableThrottles"])
    }


def test_whatever_runs_by_the_minute_is_missed_when_it_does_not(
    template: Template, alarms: dict[str, dict[str, Any]]
) -> None:
    by_the_minute = {
        name
        for name, function in of_type(template, "AWS::Serverless::Function").items()
        for event in function.get("Events", {}).values()
        if event["Type"] == "Schedule" and event["Properties"]["Schedule"] in SECONDS_BY_RATE
    }
    missed = {
        name: metric
        for alarm in alarms.values()
        if "InsufficientDataActions" in alarm
        for metric in metrics(alarm)
        for name in values(metric, "FunctionName")
    }

    assert by_the_minute == set(missed)
    for metric in missed.values():
        assert (metric["MetricName"], metric["Stat"], metric["Threshold"]) == (
            *("Invocations", "Sum"),
            1,
        )
        assert metric["Period"] >= 60


def test_the_dashboard_shows_every_function(template: Template) -> None:
    body = template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    functions = {f"${{{name}}}" for name in of_type(template, "AWS::Serverless::Function")}

    for title in ("Function duration p95, ms", "Function errors", "Function throttles"):
        (widget,) = [
            one["properties"]
            for one in json.loads(body)["widgets"]
            if one["properties"]["title"] == title
        ]
        assert {metric[3] for metric in widget["metrics"]} == functions, title


# -- the metrics that alarms and the dashboard show ------------------------------------------------

REAPED = {
    "retried": 2,
    "dead_lettered": 1,
    "throttled": False,
    "unseen": 0,
    "oldest_ready_seconds": 12.5,
}


def test_every_metric_of_an_alarm_or_of_the_dashboard_is_reported(
    template: Template,
) -> None:
    reported_of = {
        *of_reaper(REAPED),
        *of_recorder(dict.fromkeys(Event, 1)),
        *of_dispatcher(0),
    }
    alarms = {
        resource["Properties"]["MetricName"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        and resource["Properties"].get("Namespace") == NAMESPACE
    }
    body = template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    drawn = {
        metric[1]
        for widget in json.loads(body)["widgets"]
        for metric in widget["properties"]["metrics"]
        if metric[0] == NAMESPACE
    }

    assert alarms == {"Dead", "OldestReadySeconds", "TargetsBackingOff"}
    assert alarms <= drawn <= reported_of
