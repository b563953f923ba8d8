"""An outbox takes chains, workflows and batches as it takes tasks."""

from collections.abc import Iterator

import pytest

from headrace import App, Context, NewTask, chain, group
from headrace.client.client import Client
from headrace.outbox.relay import Relay
from tests.faults import FaultyService
from tests.unit.outbox.shop import OUTBOX, Order, Shop, shop_in

app = App(queue="steps")


@app.task
def load(number: int) -> int:
    return number


@app.task
def total(ctx: Context) -> int:
    return sum(ctx.batch.results())


@pytest.fixture
def shop(sqlite_url: str, service: FaultyService) -> Iterator[Shop]:
    with shop_in(sqlite_url, service) as made, service.serving(app):
        yield made


def sums(shop: Shop) -> list[object]:
    """Run the app; return the result of each task `total`."""
    shop.service.run(app, until_settled=True)
    tasks = shop.service.client.list_tasks("steps", state="SUCCEEDED")
    read = [shop.service.client.get_task(task.id) for task in tasks]
    return [task.result for task in read if task.payload["task"].endswith("total")]


def test_a_workflow_starts_with_the_commit_and_not_with_a_rollback(shop: Shop) -> None:
    steps = chain(group(load.s(1), load.s(2)), total.s())
    with shop.session() as session:
        OUTBOX.start(session, steps)
    with shop.session() as session, session.begin():
        session.add(Order(item="tea"))
        name = OUTBOX.start(session, steps)
    relay = Relay(shop.table, app)

    assert relay.drain() == {"CREATED": 1}
    assert sums(shop) == [3]
    assert shop.service.client.get_batch(name).succeeded == 3
    assert shop.table.state().waiting == 0


def test_a_batch_calls_back_when_its_members_have_ended(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        name = OUTBOX.batch(session, (load.s(n) for n in range(30)), on_ended=total.s())

    assert Relay(shop.table, app).drain() == {"CREATED": 1}
    assert sums(shop) == [sum(range(30))]
    assert shop.service.client.get_batch(name).total == 30


def test_a_start_that_is_sent_again_adds_nothing(shop: Shop) -> None:
    shop.service.client.create_queue("steps")
    with shop.session() as session, session.begin():
        OUTBOX.start(session, chain(load.s(1), total.s()))
        OUTBOX.batch(session, [load.s(5)], on_ended=total.s())
    service = shop.service
    impatient = Client(service.url, service.key, transport=service.transport, retries=0)
    relay = Relay(shop.table, impatient)
    with shop.service.faults.lose_answers(rate=0.5):
        for _ in range(40):
            relay.step()

    relay.drain()
    assert sorted(map(str, sums(shop))) == ["1", "5"]


def test_without_its_queue_a_workflow_waits_and_keeps_nothing_back(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        OUTBOX.start(session, chain(load.s(1), total.s()))
        sent = OUTBOX.add(session, "mail", NewTask(payload=1))
    relay = Relay(shop.table, shop.service.client)

    assert relay.drain() == {"FAILED": 1, "CREATED": 1}
    assert shop.tasks() == [sent]
    assert shop.table.state().refused == 0


def test_an_id_of_another_batch_is_refused_and_kept(shop: Shop) -> None:
    shop.service.client.create_queue("steps")
    shop.service.client.create_batch(id="nightly", total=7)
    with shop.session() as session, session.begin():
        OUTBOX.start(session, chain(load.s(1)), id="nightly")

    assert Relay(shop.table, shop.service.client).drain() == {"REFUSED": 1}
    (row,) = shop.table.rows(refused=True)
    assert row.task_id == "nightly"
