"""Metrics: lines of the embedded metric format, of the deployment as a whole."""

import json

from headrace.domain.transitions import Event
from headrace.runtime.function import NAMESPACE, of_dispatcher, of_reaper, of_recorder
from infra.template import Template

REAPED = {
    "retried": 2,
    "dead_lettered": 1,
    "throttled": False,
    "unseen": 0,
    "oldest_ready_seconds": 12.5,
}


def test_every_metric_of_ours_that_an_alarm_or_the_dashboard_shows_is_told(
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
