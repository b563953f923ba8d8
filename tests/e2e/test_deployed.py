"""What only a deployment shows: doors, stream, schedules, secrets, metrics, permissions."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import urllib3

from headrace import Client
from headrace.embedded.service import close_all
from headrace.runtime.function import ALWAYS
from headrace.wire.tasks import Task
from tests.e2e.conftest import soon, succeed, take
from tests.e2e.stack import Stack

pytestmark = pytest.mark.gate

# Everything is started at once, so that the tests wait only once for a schedule of a minute.
_A_MINUTE_OR_TWO = 150.0
_APP = """
from headrace import App

app = App()


@app.task(queue="e2e.app")
def double(number: int) -> int:
    return 2 * number
"""


@dataclass(frozen=True)
class Begun:
    """What was started before the first test."""

    abandoned: Task
    at: datetime


@pytest.fixture(scope="module", autouse=True)
def begun(client: Client) -> Begun:
    """Let a task succeed, abandon one with a short lease, and put a schedule."""
    client.create_queue("e2e.life")
    client.create_queue("e2e.lapse", keepalive_timeout_in_seconds=5)
    client.create_queue("e2e.tick")
    client.create_queue("e2e.app")
    client.put_schedule("e2e.tick", "each-minute", every_seconds=60, payload={"tick": True})
    for queue in ("e2e.life", "e2e.lapse"):
        client.enqueue(queue, {"to": "ada"})
    succeed(client, take(client, "e2e.life"))
    client.enqueue("e2e.life", {"to": "ada"})  # stays: the age of the oldest ready task
    return Begun(take(client, "e2e.lapse"), datetime.now(UTC))


def ask(path: str, **headers: str) -> urllib3.BaseHTTPResponse:
    url = os.environ["HEADRACE_STAGE_URL"] + path
    return urllib3.request("GET", url, headers=headers, redirect=False, timeout=60)


def test_api_gateway_answers_in_our_words_and_with_our_headers() -> None:
    unknown_key = {"Authorization": "Bearer nobodys-key-at-all"}
    refused = [ask("/v1/queues"), ask("/v1/queues", **unknown_key)]
    missing, health = ask("/nothing/here"), ask("/v1/health")

    for answer in refused:
        assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (missing.status, missing.json()["code"], health.status) == (404, "not_found", 200)
    for answer in [*refused, missing, health]:
        assert {name: answer.headers[name] for name in ALWAYS} == ALWAYS


def test_a_firewall_stands_before_the_api(stack: Stack) -> None:
    api = stack.resources()["Api"]["PhysicalResourceId"]
    stage = f"arn:aws:apigateway:us-east-1::/restapis/{api}/stages/e2e"

    wall = boto3.client("wafv2").get_web_acl_for_resource(ResourceArn=stage)["WebACL"]

    limits = {each["Name"]: each["Statement"]["RateBasedStatement"] for each in wall["Rules"]}
    assert {name: rule["AggregateKeyType"] for name, rule in limits.items()} == {
        "per-address": "IP",
        "per-key": "CUSTOM_KEYS",
    }


def test_bodies_reach_the_api_byte_for_byte() -> None:
    url = f"{os.environ['HEADRACE_STAGE_URL']}/v1/queues/e2e.life/tasks"
    headers = {
        "Authorization": f"Bearer {os.environ['HEADRACE_KEY']}",
        "Content-Type": "application/json",
    }

    answer = urllib3.request("POST", url, body=b'{"tasks": "\xff"}', headers=headers, timeout=60)

    assert answer.status == 400
    assert answer.json()["detail"] == "the body is not UTF-8"  # API Gateway made no text of it


def test_the_command_makes_the_first_key_and_a_worker_works_with_it(tmp_path: Path) -> None:
    Path(tmp_path, "sums.py").write_text(_APP)
    environment = {**os.environ, "HEADRACE_URL": os.environ["HEADRACE_STAGE_URL"]}
    environment["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}{os.pathsep}{tmp_path}"

    def run(*command: str, key: str = os.environ["HEADRACE_KEY"]) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**environment, "HEADRACE_KEY": key},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    headrace = ("-m", "headrace.cli.main")
    key = run(*headrace, "key", "create", "sums", "--role", "worker", "--queue", "e2e.app")
    task_id = run("-c", "from sums import double; print(double.enqueue(21).id)", key=key)
    run(*headrace, "work", "sums:app", "--burst", key=key)

    shown = json.loads(run(*headrace, "task", "show", task_id, "--json", key=key))
    assert (shown["status"], shown["result"]) == ("SUCCEEDED", 42)


def test_the_recorder_has_counted_from_the_stream(client: Client) -> None:
    def counted() -> bool:
        points = client.get_metrics("e2e.life").points
        return sum(point.succeeded or 0 for point in points) == 1

    assert soon(counted, seconds=60, what="a task counted by the recorder")


def test_the_recorder_has_written_the_lake(outputs: dict[str, str], begun: Begun) -> None:
    bucket = outputs["LakeAddress"].removeprefix("s3://")

    def written() -> list[str]:
        found = boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
        return [each["Key"] for each in found]

    for name in soon(written, seconds=60, what="a file in the lake"):
        assert name.startswith(f"raw/dt={begun.at:%Y-%m-%d}/")


def test_the_reaper_reclaims_a_lapsed_lease_without_a_dequeue(client: Client, begun: Begun) -> None:
    def back() -> Task | None:
        task = client.get_task(begun.abandoned.id)
        return task if task.state == "ENQUEUED" else None

    task = soon(back, seconds=_A_MINUTE_OR_TWO, what="a lapsed lease reclaimed by the reaper")

    assert [(error.kind, error.worker) for error in task.errors] == [("lease_expired", "gone:1")]


def test_the_scheduler_enqueues_what_a_schedule_says(client: Client, begun: Begun) -> None:
    def tasks() -> list[Task]:
        return list(client.list_tasks("e2e.tick"))

    ticks = soon(tasks, seconds=_A_MINUTE_OR_TWO, what="a task of a schedule")

    assert {task.schedule for task in ticks} == {"each-minute"}
    assert min(task.scheduled_at for task in ticks) > begun.at + timedelta(seconds=30)


def logged(stack: Stack) -> Iterator[str]:
    """Yield every line of the functions' logs."""
    group = stack.resources()["FunctionLogs"]["PhysicalResourceId"]
    pages = boto3.client("logs").get_paginator("filter_log_events")
    for page in pages.paginate(logGroupName=group):
        for event in page["events"]:
            yield event["message"]


def metrics(stack: Stack) -> dict[str, float]:
    """Return the largest value of each metric in the functions' logs."""
    found: dict[str, float] = {}
    for line in logged(stack):
        if line.startswith('{"_aws"'):
            reported = json.loads(line)
            for metric in reported["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
                name = metric["Name"]
                found[name] = max(reported[name], found.get(name, 0))
    return found


@pytest.mark.usefixtures("begun")
def test_metrics_are_in_the_logs_for_cloudwatch_to_read(stack: Stack) -> None:
    # The emulator does not log what functions on streams print, so the recorder's are missing.
    wanted = {"OldestReadySeconds", "LeasesLapsed"}

    def positive_metrics() -> set[str]:
        return {name for name, value in metrics(stack).items() if value > 0} & wanted

    soon(
        lambda: positive_metrics() == wanted,
        seconds=_A_MINUTE_OR_TWO,
        what="positive metrics of the reaper",
    )


def test_no_function_was_refused_anything_that_it_wanted(stack: Stack) -> None:
    lines = logged(stack)

    assert [line for line in lines if "AccessDenied" in line or "not authorized" in line] == []


def test_the_admin_key_is_in_no_log_and_no_function_settings(
    stack: Stack, outputs: dict[str, str]
) -> None:
    key = stack.secret(outputs["AdminKeyArn"])
    settings = json.dumps(
        [
            boto3.client("lambda").get_function_configuration(
                FunctionName=each["PhysicalResourceId"]
            )
            for each in stack.resources().values()
            if each["ResourceType"] == "AWS::Lambda::Function"
        ],
        default=str,
    )

    assert json.dumps(key) not in settings
    assert not [line for line in logged(stack) if key in line]


def test_alarms_watch_it_and_a_dashboard_shows_it(stack: Stack) -> None:
    client = boto3.client("cloudwatch")
    watched = {
        name
        for name, each in stack.resources().items()
        if each["ResourceType"] == "AWS::CloudWatch::Alarm"
    }
    dashboard: dict[str, Any] = json.loads(
        client.get_dashboard(DashboardName=stack.name)["DashboardBody"]
    )

    assert {"ApiErrors", "FunctionErrors", "OldestReady", "ReaperNotRunning", "Dead"} <= watched
    assert len(client.describe_alarms()["MetricAlarms"]) == len(watched)
    assert len(dashboard["widgets"]) >= 8


def test_a_program_uses_the_tables_beside_clients_over_http(
    client: Client, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEADRACE_TASKS_TABLE", "HEADRACE_CONTROL_TABLE"):
        monkeypatch.delenv(name)  # the program asks the stack for them
    close_all()
    client.create_queue("e2e.tables")
    with Client(f"dynamodb://us-east-1/{stack.name}") as direct:
        made = direct.enqueue("e2e.tables", "over the tables")
        task = take(client, "e2e.tables")
        assert (task.id, task.payload) == (made.id, "over the tables")
        succeed(direct, task)
    close_all()

    assert client.get_task(task.id).state == "SUCCEEDED"
