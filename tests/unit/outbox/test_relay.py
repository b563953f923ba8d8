"""The relay: what it does with rows that cannot be enqueued, and with a service that is away."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import App, NewTask, Report
from headrace.domain.errors import Unavailable
from headrace.outbox.relay import Relay
from headrace.outbox.sqlalchemy import SqlAlchemyOutbox
from tests.faults import FaultyService
from tests.unit.app.app_runner import Backwards
from tests.unit.outbox.shop import OUTBOX, Shop, shop_in


@pytest.fixture
def shop(sqlite_url: str, service: FaultyService) -> Iterator[Shop]:
    with shop_in(sqlite_url, service) as made:
        yield made


def add(shop: Shop, queue: str = "mail", **fields: Any) -> str:
    with shop.session() as session, session.begin():
        return OUTBOX.add(session, queue, NewTask(**fields))


def spoil(shop: Shop, task_id: str, old: str, new: str) -> None:
    """Change a row as if it had been written under other limits."""
    table = OUTBOX.table
    entry = next(row.entry for row in shop.table.rows() if row.task_id == task_id)
    with shop.engine.begin() as connection:
        of_the_task = table.update().where(table.c.task_id == task_id)
        connection.execute(of_the_task.values(entry=entry.replace(old, new)))


EXPIRED = datetime(2020, 1, 1, tzinfo=UTC)


def test_a_row_that_is_refused_keeps_no_other_one_back(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    first = add(shop, payload=1)
    add(shop, id="bad", payload=2, dedupe_key="key")
    add(shop, id="late", payload=3, expires_at=EXPIRED)
    add(shop, id="torn", payload=3)
    last = add(shop, payload=4)
    spoil(shop, "bad", '"key"', '""')
    spoil(shop, "torn", '{"payload"', '{"calls"')

    with caplog.at_level(logging.WARNING, "headrace.outbox"):
        outcomes = shop.relay.drain()

    assert outcomes == {"CREATED": 2, "REFUSED": 3}
    assert shop.tasks() == [first, last]
    errors = {row.task_id: row.error for row in shop.table.rows(refused=True)}
    assert errors == {
        "bad": "task.dedupe_key must not be empty",
        "late": "expires_at would pass before the task is due",
        "torn": "task.calls is not a field of this request",
    }
    assert "Task bad of the outbox is refused by queue mail, and kept" in caplog.text


def test_rows_for_a_missing_queue_wait_and_keep_no_other_queue_back(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = [add(shop, "later") for _ in range(7)]
    sent = add(shop)
    now = [0.0]
    relay = Relay(shop.table, shop.service.client, batch=3, monotonic=lambda: now[0])

    with caplog.at_level(logging.WARNING, "headrace.outbox"):
        outcomes = relay.drain()

    assert outcomes == {"FAILED": 3, "CREATED": 1}  # one try for all of the queue
    assert shop.tasks() == [sent]
    assert "wait for queue later, 3 of them were tried: there is no queue later" in caplog.text
    first = shop.table.rows()[0]
    assert (first.attempts, first.error) == (1, "there is no queue later")
    assert shop.table.state().refused == 0

    shop.service.client.create_queue("later")
    now[0] += 60
    assert relay.drain() == {"CREATED": 7}
    assert shop.tasks("later") == waiting


def test_a_key_for_other_queues_only_keeps_the_rest_going(shop: Shop) -> None:
    shop.service.client.create_queue("secret")
    key = shop.service.client.create_key("web", "producer", ["mail"])
    add(shop, "secret")
    sent = add(shop)

    outcomes = Relay(shop.table, shop.service.connect(key.secret)).drain()

    assert outcomes == {"FAILED": 1, "CREATED": 1}
    assert shop.tasks() == [sent]


def test_the_relay_backs_off_while_the_service_is_unavailable(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    made = add(shop)
    relay = Relay(shop.table, shop.service.client, chance=lambda: 0.5)

    with shop.service.faults.lose_requests(rate=1.0), caplog.at_level("DEBUG", "headrace.outbox"):
        rests = [relay.step() for _ in range(9)]

    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert shop.table.rows()[0].attempts == 0  # it is not the row's fault
    levels = [one.levelname for one in caplog.records if one.name == "headrace.outbox"]
    assert levels == ["WARNING", *["DEBUG"] * 8]

    assert relay.step() == 1
    assert shop.tasks() == [made]


def test_repeated_rows_with_dedupe_keys_take_effect_once(shop: Shop) -> None:
    client = shop.service.client
    client.enqueue("mail", "old", id="holder", dedupe_key="ada")
    add(shop, dedupe_key="ada")
    add(shop, dedupe_key="ada", payload="new", overwrite_on_duplicate=["payload"])
    with shop.service.faults.lose_answers(of="enqueue", times=1), pytest.raises(Unavailable):
        shop.relay.drain()
    (task,) = client.dequeue("mail").tasks
    client.report("mail", [Report.on(task, "SUCCEEDED")])

    assert OUTBOX.relay(shop.engine, shop.service.client).drain() == {
        "DUPLICATE": 1,
        "OVERWRITTEN": 1,
    }
    assert task.payload == "new"
    assert shop.tasks() == ["holder"]


def test_the_codec_encodes_the_payloads_of_rows(shop: Shop) -> None:
    codec = Backwards()
    private = App(shop.service.connect(codec=codec))
    sent: list[str] = []

    @private.task(queue="mail")
    def note(text: str) -> None:
        sent.append(text)

    outbox = SqlAlchemyOutbox(codec=codec)
    with shop.session() as session, session.begin():
        outbox.enqueue(session, note, "a secret")
        outbox.add(session, "mail", NewTask(payload="another secret"))

    assert "secret" not in str([row.entry for row in shop.table.rows()])
    OUTBOX.relay(shop.engine, private).drain()
    work = shop.service.run(private)
    assert work.succeeded == 1
    assert sent == ["a secret"]
