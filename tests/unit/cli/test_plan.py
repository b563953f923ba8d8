"""`headrace plan`."""

import pytest

from headrace.cli.session import CliSession
from headrace.domain import cost
from tests.unit.cli.cli_runner import Ran, invoke


def plan(*words: str) -> Ran:
    return invoke("plan", *words, session=CliSession(env={}))


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
