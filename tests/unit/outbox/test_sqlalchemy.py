"""The outbox for SQLAlchemy, on SQLite and on PostgreSQL: in the transaction, or not at all."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from headrace import NewTask
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.outbox.relay import Relay
from headrace.outbox.sqlalchemy import SqlAlchemyOutbox
from headrace.outbox.sqlalchemy.table import open_url
from headrace.outbox.table import OutboxRow, SettledRows
from tests.faults import FaultyService
from tests.unit.outbox.shop import OUTBOX, Order, Shop, send_receipt, shop_in
from tests.waiting import until


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def shop(url: str, service: FaultyService) -> Iterator[Shop]:
    with shop_in(url, service) as made:
        yield made


@pytest.fixture
def postgres_shop(postgres_url: str, service: FaultyService) -> Iterator[Shop]:
    with shop_in(postgres_url, service) as made:
        yield made


def place(shop: Shop, *orders: int, delay: float | None = None) -> list[str]:
    with shop.session() as session, session.begin():
        session.add_all(Order(id=order, item="tea") for order in orders)
        task = send_receipt if delay is None else send_receipt.options(delay=delay)
        return [OUTBOX.enqueue(session, task, order=order) for order in orders]


# ---------------------------------------------------------------------------------- the transaction


def test_a_task_is_committed_with_the_data_it_is_about(shop: Shop) -> None:
    ids = place(shop, 1, 2)

    assert shop.tasks() == []
    outcomes = shop.relay.drain()

    assert outcomes == {"CREATED": 2}
    assert shop.tasks() == ids
    task = shop.service.client.get_task(ids[0], payload=True)
    assert task.payload == {"task": "receipt", "args": {"order": 1}}
    assert shop.table.state().waiting == 0


def test_what_is_rolled_back_is_never_enqueued(shop: Shop) -> None:
    with shop.session() as session:
        session.add(Order(id=1, item="tea"))
        OUTBOX.enqueue(session, send_receipt, order=1)
        session.flush()
        session.rollback()

    assert shop.relay.drain() == {}
    assert shop.orders() == shop.tasks() == []


def test_a_savepoint_takes_its_tasks_with_it(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        kept = OUTBOX.enqueue(session, send_receipt, order=1)
        savepoint = session.begin_nested()
        OUTBOX.enqueue(session, send_receipt, order=2)
        savepoint.rollback()

    shop.relay.drain()

    assert shop.tasks() == [kept]


def test_options_raw_tasks_and_many_at_once_are_written_too(shop: Shop) -> None:
    before = datetime.now(UTC)
    with shop.session() as session, session.begin():
        late = OUTBOX.enqueue(session, send_receipt.options(delay=60, tags={"a": "b"}), order=1)
        many = OUTBOX.enqueue_many(session, send_receipt, [{"order": 2}, {"order": 3}])
        raw = OUTBOX.add(session, "mail", NewTask(payload="raw", id="order-4"))
        more = OUTBOX.add_many(session, "mail", [NewTask(), NewTask()])

    shop.relay.drain()

    tasks = {task.id: task for task in shop.service.client.list_tasks("mail", payload=True)}
    assert set(tasks) == {late, *many, raw, *more}
    assert raw == "order-4"
    assert tasks[raw].payload == "raw"
    assert tasks[late].tags == {"a": "b"}
    due_in = tasks[late].scheduled_at - before
    assert timedelta(seconds=60) <= due_in < timedelta(seconds=90)


def run_async(url: str, story: Callable[[AsyncSession], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        async with AsyncSession(engine) as session:
            await story(session)
        await engine.dispose()

    asyncio.run(run())


def test_async_sessions_write_without_awaiting(shop: Shop, url: str) -> None:
    ids = []

    async def story(session: AsyncSession) -> None:
        async with session.begin():
            ids.append(OUTBOX.enqueue(session, send_receipt, order=1))
        async with session.begin():
            OUTBOX.enqueue(session, send_receipt, order=2)
            await session.rollback()

    run_async(url, story)
    shop.relay.drain()

    assert shop.tasks() == ids


# ---------------------------------------------------------------------------------------- the relay


def test_rows_come_in_the_order_in_which_they_were_written(shop: Shop) -> None:
    ids = [task for order in range(0, 260, 13) for task in place(shop, *range(order, order + 13))]

    outcomes = shop.relay.drain()

    assert outcomes == {"CREATED": 260}
    given: list[str] = []
    while tasks := shop.service.client.dequeue("mail", batch_size=25).tasks:
        given += [task.id for task in tasks]
    assert given == ids


def test_several_relays_at_once_enqueue_each_row_once(shop: Shop) -> None:
    ids = [task for order in range(0, 300, 50) for task in place(shop, *range(order, order + 50))]
    relays = [Relay(shop.table, shop.service.client, batch=10) for _ in range(4)]
    threads = [threading.Thread(target=relay.drain) for relay in relays]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shop.relay.drain()  # what SQLite was too busy for

    assert sorted(shop.tasks()) == sorted(ids)
    assert shop.table.state().waiting == 0


def test_relays_on_postgresql_pass_over_what_another_one_has(postgres_shop: Shop) -> None:
    shop = postgres_shop
    ids = place(shop, *range(10))
    seen: list[str] = []

    def first(rows: Sequence[OutboxRow]) -> SettledRows:
        seen.extend(row.task_id for row in rows)
        assert shop.relay.drain() == {"CREATED": 4}  # all but those
        place(shop, 10)  # and whoever inserts does not wait
        return SettledRows()

    shop.table.settle(6, [], first)

    assert seen == ids[:6]
    assert shop.table.state().waiting == 7


def test_a_commit_is_seen_at_once_by_a_relay_of_the_process(shop: Shop) -> None:
    (first,) = place(shop, 1)
    with OUTBOX.relay(shop.engine, shop.service.client, interval=600):
        until(lambda: shop.tasks() == [first])  # it now waits for the next
        (second,) = place(shop, 2)

        until(lambda: shop.tasks() == [first, second], 20)


# ------------------------------------------------------------------------------------- what is seen


def test_a_missing_table_names_the_command_that_creates_it(url: str) -> None:
    engine = sa.create_engine(url)
    table = SqlAlchemyOutbox(name="elsewhere").open(engine)

    with pytest.raises(NotFound, match=r"there is no table elsewhere: .*headrace outbox create"):
        table.state()

    table.create()
    table.create()
    assert table.state().waiting == 0
    with engine.begin() as connection:
        connection.execute(sa.text("drop table elsewhere"))
    table.close()


def test_a_database_that_is_away_is_unavailable_and_no_password_is_shown() -> None:
    table = open_url("postgresql+psycopg://shop:tell-nobody@127.0.0.1:1/shop")

    with pytest.raises(Unavailable) as away:
        table.state()

    assert "tell-nobody" not in f"{away.value} {table.name} {away.value.__context__!r}"
    assert "shop:***@127.0.0.1:1" in table.name


@pytest.mark.parametrize("url", ["nodb://shop:tell-nobody@host/shop"])
def test_what_is_no_url_of_a_database_says_so_without_it(url: str) -> None:
    with pytest.raises(InvalidRequest, match="must be a database's URL") as refused:
        open_url(url)

    assert "tell-nobody" not in str(refused.value)
