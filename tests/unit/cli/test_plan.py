"""`headrace plan`."""

import re

import pytest

from headrace.cli.session import CliSession
from headrace.domain import cost
from tests.unit.cli.cli_runner import Ran, invoke


def plan(*words: str) -> Ran:
    return invoke("plan", *words, session=CliSession(env={}))


def test_it_needs_no_service_and_shows_its_arithmetic() -> None:
    ran = plan("--rate", "50/s", "--payload", "2KB", "--retries", "0.1", "--heartbeats", "2")

    assert ran.code == 0
    assert "129,600,000 tasks in 30 days" in ran.out
    assert "(2,000 + 600 bytes) in KB, rounded up" in ran.out
    assert "enqueue 4 + dequeue 5 + succeed 5 + retries 0.1 x 10 + heartbeats 2 x 3" in ran.out
    assert "21 write units" in ran.out
    assert "Together" in ran.out
    assert not any(line.endswith(" ") for line in ran.out.splitlines())


def test_without_a_payload_it_says_which_one_it_takes() -> None:
    assumed, given = plan("--rate", "10"), plan("--rate", "10", "--payload", "200")

    line = "Payload     200 bytes, as no --payload is given\n"
    assert assumed.code == 0
    assert line in assumed.out
    assert assumed.out.replace(line, "") == given.out
    assert "as JSON: 200." in re.sub(r"\s+", " ", plan("--help").out)


def test_everything_is_written_out_with_its_unit() -> None:
    shown = plan("--rate", "50", "--payload", "2KB").out

    assert "1: 50 tasks/s x 1 delivery, 500 deliveries/s each" in shown
    assert "Calls       enqueue 1 + dequeue 1 + report 1\n" in shown
    assert "25 tasks in each: 0.12 calls for one task" in shown
    assert re.search(r"DynamoDB storage +13 GB +0\.25 a GB", shown)
    assert "0.0000133334 each" in shown
    assert "e-05" not in shown
    assert "a bare number is per second" in re.sub(r"\s+", " ", plan("--help").out)


def test_it_says_what_the_formulas_say() -> None:
    load = cost.Load(rate=12.5, payload_bytes=4096, history_seconds=0, batch=10, retries=0.2)

    shown = plan(
        *("--rate", "750/m", "--payload", "4KiB", "--history", "0", "--batch", "10"),
        *("--retries", "0.2", "--price", "write=1", "--price", "api=2", "--json"),
    ).json

    bill = cost.bill(load, cost.Prices(write=1, api=2))
    assert shown["units"]["write"] == bill.units.write
    assert shown["shards"] == bill.shards
    assert shown["usd_per_month"] == pytest.approx(bill.usd)
    assert [line["usd"] for line in shown["lines"]] == [line.usd for line in bill.lines]


def test_over_tables_there_is_no_api_to_pay_for() -> None:
    load = ("--rate", "10", "--payload", "300", "--over-tables")
    shown, whole = plan(*load).out, plan(*load, "--json").json

    assert "Calls       none of the API" in shown
    assert "API Gateway" not in shown
    assert "Lambda" not in shown
    assert whole["usd_per_month"] == cost.bill(cost.Load(10, 300), over_tables=True).usd
    assert whole["idle_worker_usd_per_month"] == cost.idle_worker_usd(over_tables=True)


def test_a_large_payload_is_in_s3_unless_all_is_kept_in_the_table() -> None:
    load = ("--rate", "10", "--payload", "200KB")
    shown, all_inside = plan(*load), plan(*load, "--offload", "0")

    assert "enqueue 2 + dequeue 3 + succeed 3" in shown.out
    assert "The payload (200,000 bytes) is in S3: it is over 32,768" in shown.out
    assert re.search(r"S3 writes +25\.9 M +5 a million +129\.60", shown.out)
    assert re.search(r"S3 storage +173 GB +0\.023 a GB", shown.out)
    assert "write units: enqueue 197 + dequeue 198 + succeed 198" in all_inside.out
    assert "S3" not in all_inside.out
    small = plan("--rate", "10", "--payload", "32KiB")
    assert "S3" not in small.out


def test_more_than_a_queue_carries_is_spread_over_several() -> None:
    assert "spread the load over 2 queues" in plan("--rate", "60000", "--payload", "100").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "0", "--payload", "1"), "must be more than 0"),
        (("--rate", "5/y", "--payload", "1"), "no rate such as 50/s"),
        (("--rate", "5", "--payload", "big"), "no size such as 300"),
        (("--rate", "5", "--payload", "1MB"), "at most 262,144 bytes"),
        (("--rate", "5", "--payload", "1", "--batch", "26"), "26 is not in the range 1<=x<=25"),
        (("--rate", "5", "--payload", "1", "--price", "gold=1"), "no price such as write=0.705"),
        (("--rate", "5", "--payload", "1", "--price", "write=-1"), "no price such as"),
        (("--rate", "5", "--payload", "1", "--price", "write=nan"), "no price such as"),
        (("--payload", "1"), "Missing option '--rate'"),
    ],
)
def test_what_cannot_be_reckoned_is_said(words: tuple[str, ...], message: str) -> None:
    ran = plan(*words)

    assert ran.code == 2
    assert message in ran.error
