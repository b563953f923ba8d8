"""`headrace outbox` and `headrace work --outbox`, over a database in a file."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headrace import NewTask
from headrace.cli.session import CliSession
from headrace.outbox.metrics import OutboxMetrics
from tests.faults import FaultyService
from tests.unit.cli.cli_runner import Ran, invoke
from tests.unit.outbox.shop import OUTBOX, Shop, app, shop_in

pytestmark = pytest.mark.usefixtures("logging_as_before")

EXPIRED = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with FaultyService() as service, shop_in(url, service) as made:
        service.client.create_queue("mail")
        yield made


def add(shop: Shop, *tasks: NewTask) -> list[str]:
    with shop.session() as session, session.begin():
        return OUTBOX.add_many(session, "mail", tasks)


def outbox(*words: str, shop: Shop | None = None, env: dict[str, str] | None = None) -> Ran:
    client = shop.service.client if shop else None
    now = shop.service.clock if shop else lambda: datetime.now(UTC)
    session = CliSession(given_client=client, env=env or {}, at_terminal=lambda: False, now=now)
    return invoke("outbox", *words, session=session)


def test_the_table_is_created_once(url: str) -> None:
    assert outbox("status", url).code == 3

    assert outbox("create", url).err == "There is a table headrace_outbox.\n"
    assert outbox("create", url, "--json").json == {"table": "headrace_outbox"}

    assert outbox("status", url, "--json").json == {
        "waiting": 0,
        "refused": 0,
        "oldest_at": None,
        "oldest_seconds": 0,
    }


def test_a_burst_relays_what_waits(shop: Shop, url: str) -> None:
    ids = add(shop, *[NewTask()] * 30)

    ran = outbox("relay", url, "--burst", "--json", shop=shop)

    assert ran.json == {"CREATED": 30}
    assert shop.tasks() == ids
    assert outbox("relay", url, "--burst", shop=shop).code == 0


def test_refused_rows_are_listed_retried_and_deleted(shop: Shop, url: str) -> None:
    add(shop, *(NewTask(id=one, expires_at=EXPIRED, payload="secret") for one in "abc"))
    outbox("relay", url, "--burst", shop=shop)
    add(shop, NewTask(id="waits"))

    listed = outbox("list", url, "--refused")
    as_json = outbox("list", url, "--json").lines
    whole = outbox("list", url, "--json", "--payload", "--limit", "1").lines

    assert "expires_at would pass before the task is due" in listed.out
    assert "waits" not in listed.out
    assert [row["id"] for row in as_json] == ["a", "b", "c", "waits"]
    assert as_json[0]["attempts"] == 1
    assert "secret" not in str(as_json)
    assert whole[0]["task"]["payload"] == "secret"
    assert outbox("status", url, "--max-age", "9999d", shop=shop).code == 1

    assert outbox("retry", url, "--id", "a", "--json").json == {"retried": 1}
    assert outbox("delete", url, "--id", "b", "--yes", "--json").json == {"deleted": 1}
    assert outbox("delete", url, "--all").code == 2  # nobody to ask
    assert outbox("delete", url, "--all", "--yes").err == "1 row deleted.\n"
    assert outbox("delete", url, "--all").err == "0 rows deleted.\n"  # nothing to ask about
    assert [row["id"] for row in outbox("list", url, "--json").lines] == ["a", "waits"]


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.mark.usefixtures("working")
def test_a_worker_relays_an_outbox_too(shop: Shop, url: str) -> None:
    shop.service.client.delete_queue("mail")
    with shop.session() as session, session.begin():
        OUTBOX.enqueue(session, app.tasks["receipt"], order=1)
    cli = CliSession(given_client=shop.service.client, env={"HEADRACE_OUTBOX": url})

    ran = invoke("work", "tests.unit.outbox.shop:app", "--burst", "--outbox", "-", session=cli)

    assert ran.code == 0, ran.err
    (task,) = shop.service.client.list_tasks("mail")
    assert task.status == "SUCCEEDED"


def test_the_metrics_count_the_rows(shop: Shop) -> None:
    registry = CollectorRegistry()
    registry.register(OutboxMetrics(shop.table))
    add(shop, NewTask(), NewTask())

    assert registry.get_sample_value("headrace_outbox_waiting") == 2
    assert registry.get_sample_value("headrace_outbox_refused") == 0
    assert (registry.get_sample_value("headrace_outbox_oldest_seconds") or 0) > 0
