"""`headrace outbox` and `headrace work --outbox`, over a database in a file."""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headrace import NewTask
from headrace.cli.outbox import TABLE
from headrace.cli.session import CliSession
from headrace.outbox import rows
from headrace.outbox.metrics import OutboxMetrics
from headrace.outbox.sqlalchemy.table import open_url
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Ran, invoke
from tests.unit.outbox.shop import OUTBOX, Shop, app, shop_in

EXPIRED = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with MemoryService() as service, shop_in(url, service) as made:
        service.client.create_queue("mail")
        yield made


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Forget how a relay or a worker has set up logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def add(shop: Shop, *tasks: NewTask) -> list[str]:
    with shop.session() as session, session.begin():
        return OUTBOX.add_many(session, "mail", tasks)


def outbox(*words: str, shop: Shop | None = None, env: dict[str, str] | None = None) -> Ran:
    client = shop.service.client if shop else None
    now = shop.service.clock if shop else lambda: datetime.now(UTC)
    session = CliSession(given_client=client, env=env or {}, at_terminal=lambda: False, now=now)
    return invoke("outbox", *words, session=session)


def test_the_table_has_one_name() -> None:
    assert TABLE == rows.TABLE


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


def test_a_table_may_have_another_name(url: str) -> None:
    outbox("create", url, "--table", "outbox")

    assert outbox("status", url, "--table", "outbox").code == 0
    missing = outbox("status", url)
    assert missing.error.startswith("error: there is no table headrace_outbox: create it with")


def test_the_database_may_be_named_by_the_environment(url: str) -> None:
    assert outbox("create", env={"HEADRACE_OUTBOX": url}).code == 0

    nothing = outbox("status")
    assert nothing.code == 2
    assert "give its database's URL, or set HEADRACE_OUTBOX" in nothing.error


def test_a_burst_relays_what_waits(shop: Shop, url: str) -> None:
    ids = add(shop, *[NewTask()] * 30)

    ran = outbox("relay", url, "--burst", "--json", shop=shop)

    assert ran.json == {"CREATED": 30}
    assert shop.tasks() == ids
    assert outbox("relay", url, "--burst", shop=shop).code == 0


def test_a_burst_that_leaves_rows_behind_says_so_by_its_exit_code(shop: Shop, url: str) -> None:
    add(shop, NewTask(), NewTask(expires_at=EXPIRED))

    refused = outbox("relay", url, "--burst", "--json", shop=shop)

    assert (refused.code, refused.json) == (1, {"CREATED": 1, "REFUSED": 1})
    assert outbox("relay", url, "--burst", shop=shop).code == 0  # what is refused is left alone


def test_a_burst_logs_as_the_relay_does(shop: Shop, url: str) -> None:
    add(shop, NewTask())
    shop.service.client.delete_queue("mail")

    ran = outbox("relay", url, "--burst", shop=shop)
    as_json = outbox("relay", url, "--burst", "--log-format", "json", shop=shop)

    assert (ran.code, ran.out.split()) == (1, ["FAILED", "1"])
    assert " WARNING headrace.outbox: Rows of the outbox wait for queue mail, " in ran.error
    assert json.loads(as_json.error)["logger"] == "headrace.outbox"


def test_the_status_says_how_many_wait_and_since_when(shop: Shop, url: str) -> None:
    add(shop, NewTask(), NewTask())
    shop.service.clock.forward_to(datetime.now(UTC))
    shop.service.clock.forward(90)

    shown = outbox("status", url, shop=shop)

    assert shown.code == 0
    assert [line.split() for line in shown.out.splitlines()] == [
        ["waiting", "2"],
        ["oldest", "1.5", "min"],
        ["refused", "0"],
    ]
    assert outbox("status", url, "--max-age", "5m", shop=shop).code == 0
    assert outbox("status", url, "--max-age", "1m", shop=shop).code == 1


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


@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_rows_that_are_not_there_are_named(shop: Shop, url: str, verb: str) -> None:
    add(shop, NewTask(id="a", expires_at=EXPIRED), NewTask(id="b"))
    outbox("relay", url, "--burst", shop=shop)
    yes = ["--yes"] if verb == "delete" else []

    none = outbox(verb, url, "--id", "x", "--id", "y")  # nobody is asked
    some = outbox(verb, url, "--id", "x", "--id", "a", *yes)

    assert (none.code, none.err) == (3, "error: there is no row of x, y\n")
    assert (some.code, some.err.splitlines()[1]) == (1, "there is no row of x")
    assert some.error.startswith("1 row ")


def test_a_mistaken_name_of_a_file_makes_none(tmp_path: Path) -> None:
    missing = outbox("status", f"sqlite:///{tmp_path / 'nope.db'}")

    assert missing.code == 3
    assert missing.error.startswith("error: there is no table headrace_outbox: create it with")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["--all", "--id", "a"]])
@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_what_is_meant_has_to_be_said(verb: str, words: list[str], url: str) -> None:
    ran = outbox(verb, url, *words)

    assert ran.code == 2
    assert "give exactly one of --id and --all" in ran.error


def test_a_password_is_not_shown_by_errors() -> None:
    away = outbox("status", "postgresql://shop:tell-nobody@127.0.0.1:1/shop")
    wrong = outbox("status", "nodb://shop:tell-nobody@host")

    assert (away.code, wrong.code) == (6, 2)
    assert "tell-nobody" not in away.err + wrong.err


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


@pytest.mark.usefixtures("working")
def test_a_worker_does_not_begin_with_an_outbox_that_is_not_there(shop: Shop) -> None:
    session = CliSession(given_client=shop.service.client, env={})

    ran = invoke(
        "work", "tests.unit.outbox.shop:app", "--outbox", "sqlite:////no/where", session=session
    )

    assert ran.code == 6
    assert "the database of the outbox cannot be used" in ran.error


def test_the_metrics_count_the_rows(shop: Shop) -> None:
    registry = CollectorRegistry()
    registry.register(OutboxMetrics(shop.table))
    add(shop, NewTask(), NewTask())

    assert registry.get_sample_value("headrace_outbox_waiting") == 2
    assert registry.get_sample_value("headrace_outbox_refused") == 0
    assert (registry.get_sample_value("headrace_outbox_oldest_seconds") or 0) > 0


def test_there_are_no_metrics_of_a_database_that_is_away() -> None:
    registry = CollectorRegistry()
    registry.register(OutboxMetrics(open_url("sqlite:////no/where/shop.db")))

    assert registry.get_sample_value("headrace_outbox_waiting") is None
