"""The deploy guide says what the template has and what the formulas give."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headrace.domain import cost
from headrace.history.transitions import Event
from headrace.local.tables import Template
from headrace.runtime import telemetry
from infra import PROJECT_ROOT, starts

GUIDE: Final = (PROJECT_ROOT / "docs" / "guide" / "deploy.md").read_text()
POLICIES: Final = (
    "ProducerPolicyArn",
    "WorkerPolicyArn",
    "OperatorPolicyArn",
    "AdminPolicyArn",
    "TasksTableName",
    "ControlTableName",
)
ROW: Final = re.compile(r"^\| ([^|]+) \|[^|]*\|[^|]*\| \**([0-9.]+)\** \|$", re.MULTILINE)


A_FILE_EVERY_TWO_SECONDS: Final = cost.MONTH_SECONDS / 2 * cost.Prices().put / 1e6
NUMBERS: Final = {"two": 2, "three": 3, "seven": 7}
USD: Final = re.compile(r"^\| ([^|]+) \| \**([0-9.]+)\** \|$", re.MULTILINE)


def count(template: Template, *kinds: str) -> int:
    return sum(resource["Type"] in kinds for resource in template["Resources"].values())


def a_million(batch: int = 25, payload: int = 424) -> cost.Bill:
    rate = 1e6 / cost.MONTH_SECONDS
    return cost.bill(cost.Load(rate, payload, history_seconds=86_400, batch=batch))


def over_tables(batch: int) -> float:
    """Return what a million tasks cost programs that use the tables themselves."""
    return cost.bill(a_million(batch).load, over_tables=True).usd


def test_the_cost_of_a_million_tasks_is_what_the_formulas_give() -> None:
    table = GUIDE[GUIDE.index("| | for a million tasks") :]
    shown = {name.strip(): usd for name, usd in ROW.findall(table)}
    bill = a_million()
    names = {
        "DynamoDB writes": "write units",
        "DynamoDB reads": "read units",
        "DynamoDB storage": "storage",
        "API Gateway calls": "API Gateway",
        "Lambda calls": "Lambda calls",
        "Lambda GB-seconds": "Lambda time",
    }

    assert f"{bill.usd:.2f}" == shown["together"]
    for line in bill.lines:
        assert f"{line.usd:.2f}" == shown[names[line.name]], line.name


@pytest.mark.parametrize(
    ("before", "usd"),
    [
        ("One task in each call instead of 25 makes it ", a_million(batch=1).usd),
        (
            "adds a write unit to each of the three writes: ",
            a_million(payload=424 + 1024).usd - a_million().usd - 0.0085,  # it is stored, too
        ),
        ("one write unit for 25 tasks, ", 1e6 / 25 * cost.noted_batch().write * 0.625 / 1e6),
        ("a million tasks cost them ", over_tables(batch=25)),
        ("a million tasks cost them 5.01, and ", over_tables(batch=1)),
        ("A worker that waits costs them ", cost.idle_worker_usd(over_tables=True)),
        ("A worker that waits adds ", cost.idle_worker_usd()),
        ("at most one every two seconds for each shard of the stream (", A_FILE_EVERY_TWO_SECONDS),
        ("if it finds nothing at all, ", cost.idle_worker_usd(queues=10)),
    ],
)
def test_so_are_the_sums_in_its_sentences(before: str, usd: float) -> None:
    found = re.search(re.escape(before) + r"([0-9.]+[0-9])", GUIDE)

    assert found is not None
    assert found[1] == f"{usd:.2f}"


def test_it_counts_the_tables_functions_buckets_and_secrets_of_the_template(
    template: Template,
) -> None:
    said = re.search(
        r"everything: (\w+) DynamoDB tables, an API Gateway, (\w+) Lambda functions, "
        r"(\w+) buckets, (\w+) secrets.*\n"
        r"Nothing runs while there is nothing to do, except (\w+) functions once a minute",
        GUIDE,
    )
    timers = sum(
        event["Type"] == "Schedule"
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Serverless::Function"
        for event in resource["Properties"].get("Events", {}).values()
    )

    assert said is not None
    assert [NUMBERS[one] for one in said.groups()] == [
        count(template, "AWS::DynamoDB::Table"),
        count(template, "AWS::Serverless::Function"),
        count(template, "AWS::S3::Bucket"),
        count(template, "AWS::SecretsManager::Secret"),
        timers,
    ]
    assert count(template, "AWS::ApiGateway::RestApi", "AWS::Serverless::Api") == 1


def test_the_cost_of_a_month_without_tasks_is_that_of_the_template(template: Template) -> None:
    section = GUIDE[GUIDE.index("### What a month costs without tasks") :]
    section = section[: section.index("These are off")]
    shown = {name: float(usd) for name, usd in USD.findall(section)}
    under_alarm = sum(
        len([one for one in alarm.get("Metrics", [alarm]) if "Expression" not in one])
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        for alarm in (resource["Properties"],)
    )
    reaped = dict.fromkeys(("retried", "dead_lettered", "throttled", "unseen"), 0.0)
    every_minute = {
        *telemetry.of_reaper({**reaped, "oldest_ready_seconds": 1.0}),
        *telemetry.of_dispatcher(1),
    }
    total = shown.pop("a stack in which nothing happens")
    prices, calls = cost.Prices(), 3 * cost.MONTH_SECONDS / 60
    timers = calls * (prices.invocations / 1e6 + 0.1 * 0.5 * prices.gb_second)  # 0.1 s, 0.5 GB

    assert shown == {
        f"{under_alarm} metrics under alarm": pytest.approx(under_alarm * 0.1),
        f"{len(every_minute)} metrics that are written every minute": pytest.approx(0.9),
        "2 secrets": 0.8,
        "reaper, scheduler and dispatcher, every minute": round(timers, 2),
    }
    assert total == pytest.approx(sum(shown.values()))
    assert f"up to {len(Event)} more metrics" in section


def test_what_costs_more_is_off_by_default_and_priced(template: Template) -> None:
    table = GUIDE[GUIDE.index("These are off until you ask for them:") :].partition("\n\nAPI")[0]
    off = {"RawLake": "false", "SparkRuntime": "none", "Tracing": "Disabled", "KmsKeyArn": ""}
    off |= {"RequestsPerAddress": 0, "RequestsPerKey": 0}  # type: ignore[dict-item]

    assert set(re.findall(r"`([A-Za-z]+)`", table)) == off.keys()
    assert {name: template["Parameters"][name]["Default"] for name in off} == off


def test_an_idle_worker_asks_as_often_as_it_was_measured_to() -> None:
    """What it asks for in half an hour is counted in tests/unit/worker/test_idle.py."""
    assert f"every {cost.IDLE_POLL_SECONDS} seconds on average" in GUIDE


def test_every_parameter_is_explained_and_none_is_invented(template: Template) -> None:
    section = GUIDE[GUIDE.index("## Parameters") : GUIDE.index("## What a million")]
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", section))

    assert named == template["Parameters"].keys()


def test_the_outputs_it_speaks_of_exist(template: Template) -> None:
    for name in (
        "ApiUrl",
        "ConsoleUrl",
        "AdminKeyArn",
        "AdminKeyCommand",
        "LakeAddress",
        *POLICIES,
    ):
        assert name in GUIDE
        assert name in template["Outputs"]


def test_the_bars_of_starts_are_those_that_are_checked() -> None:
    rows = re.findall(r"^\| (\w+) \| \d+ MB \| ([0-9.]+) \| ([0-9.]+) \|$", GUIDE, re.MULTILINE)
    bars = {name.partition(".")[0]: bar for name, bar in starts.BARS.items()}

    assert {name: float(bar) for name, _, bar in rows} == bars
    assert all(float(measured) <= float(bar) for _, measured, bar in rows)


def test_the_line_that_takes_the_tables_out_of_the_template_runs(
    template: Template, tmp_path: Path
) -> None:
    (line,) = re.findall(r'python -c "(import json; from infra.*?)" > tables.json', GUIDE)

    printed = subprocess.run(
        [sys.executable, "-c", line], check=True, capture_output=True, text=True, cwd=PROJECT_ROOT
    ).stdout
    tables = json.loads(printed)

    assert set(tables["Resources"]) == {"TasksTable", "ControlTable"}
    for name, table in tables["Resources"].items():
        assert table == template["Resources"][name]
        assert table["DeletionPolicy"]
    needed = set(re.findall(r'"Ref": "(\w+)"', printed)) | set(
        re.findall(r'"Fn::If": \["(\w+)"', printed)
    )
    assert needed <= {*tables["Parameters"], *tables["Conditions"]}
