"""The cost of a call by SQLite's estimate, compared with the accounting of DynamoDB Local.

If DynamoDB Local differs from Amazon's guide, the guide applies: a refused write costs the units of
the stored item, an empty query those of one page, and a transaction those of each of its items:
this engine reports one item for each table.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from msgspec import structs

from headrace.domain.change import Change, Done, Entry, KeyLock
from headrace.domain.task import Place, State, Task
from headrace.local.tables import DynamoDBClient, TableNames
from headrace.store.base import Record, Store
from headrace.store.call_scope import Meter, metered
from headrace.store.dynamo import DynamoStore
from headrace.store.sqlite import SqliteStore
from tests.dynamodb.planned import task_in
from tests.dynamodb.test_statements import CHANGES, before, named
from tests.manual_clock import ManualClock

NOW = ManualClock()()
_NUMBERS = itertools.count()
SIZES = [0, 550, 700, 3600, 9000]


@pytest.fixture(scope="module")
def stores(
    dynamodb: DynamoDBClient, module_tables: TableNames
) -> Iterator[tuple[SqliteStore, DynamoStore]]:
    """Give both, which are asked the same; this engine tells units of single writes alone."""
    tables = module_tables
    sqlite = SqliteStore()
    yield (
        sqlite,
        DynamoStore(
            dynamodb, tasks_table=tables.tasks, control_table=tables.control, sender="single"
        ),
    )
    sqlite.close()


Stores = tuple[SqliteStore, DynamoStore]


def costs(stores: Stores, call: Callable[[Store], object]) -> tuple[Meter, Meter]:
    """Call both, and return the cost of each."""
    meters: list[Meter] = []
    for store in stores:
        with metered() as meter:
            call(store)
        meters.append(meter)
    return meters[0], meters[1]


def assert_same(stores: Stores, *calls: Callable[[Store], object]) -> None:
    for call in calls:
        sqlite, dynamo = costs(stores, call)
        if dynamo == Meter():  # a query that finds nothing
            assert sqlite in (Meter(read=0.5), Meter(read=1.0), Meter())
        else:
            assert sqlite == dynamo


def new_id() -> str:
    return f"tsk_{next(_NUMBERS):026}"


def inserted(task: Task) -> Change:
    return Change(CHANGES[0].rule, task.id, insert=task)


def with_id(change: Change, task_id: str) -> Change:
    """Return *change* of another task."""
    insert = change.insert and structs.replace(change.insert, id=task_id)
    return structs.replace(change, task_id=task_id, insert=insert)


def sized(task: Task | None, size: int) -> Task | None:
    return task and structs.replace(task, payload='"' + "x" * size + '"')


@pytest.mark.parametrize(
    ("number", "change"), [pytest.param(*each, id=named(each[1])) for each in enumerate(CHANGES)]
)
def test_every_change_of_every_task(stores: Stores, number: int, change: Change) -> None:
    """Each change meets each size, in another state than the next change does."""
    for place, there in enumerate(before()):
        task_id = new_id()
        task = sized(there, (10, 700, 5000)[(number + place) % 3])
        if task is not None:
            task = structs.replace(task, id=task_id)
            assert_same(stores, commits(inserted(task)))
        made: list[bool] = []
        sqlite, dynamo = costs(stores, notes(with_id(change, task_id), made))
        assert made[0] == made[1]
        if made[0] and dynamo.write > 1.0:
            assert sqlite.write == dynamo.write
        else:  # refused, be it because it was done before
            assert sqlite.write >= dynamo.write == 1.0


def notes(change: Change, made: list[bool]) -> Callable[[Store], object]:
    return lambda store: made.append(isinstance(store.commit([change])[0], Done))


def commits(*changes: Change) -> Callable[[Store], object]:
    return lambda store: store.commit(changes)


@pytest.mark.parametrize("size", SIZES)
def test_new_tasks_and_reads_of_every_size(stores: Stores, size: int) -> None:
    task = structs.replace(
        task_in(State.ENQUEUED), id=new_id(), payload="x" * size, tags={"größe": "ß" * 10}
    )

    assert_same(
        stores,
        commits(inserted(task)),
        lambda store: store.read([task.id]),
        lambda store: store.read([task.id], consistent=False),
        lambda store: store.read([task.id], payload=False),
        lambda store: store.read([task.id, "none", "nothing"]),
        lambda store: store.tombstones([task.id]),
    )


def in_transaction(task: Task, *also: KeyLock | Change) -> Change:
    return structs.replace(inserted(task), also=also)


@pytest.mark.parametrize("size", [10, 5000])
def test_transactions_and_their_refusals(stores: Stores, size: int) -> None:
    def task() -> Task:
        return structs.replace(task_in(State.ENQUEUED), id=new_id(), payload="x" * size)

    first, second, spawned, other = task(), task(), task(), task()
    lock = KeyLock("dedupe:mail", new_id(), first.id)

    assert_same(
        stores,
        commits(in_transaction(first, lock)),
        commits(in_transaction(second, lock)),  # refused by the lock
        lambda store: store.key_lock(lock.kind, lock.name),
        lambda store: store.key_locks(lock.kind),
        lambda store: store.set_key_lock(KeyLock(lock.kind, lock.name, None, first.id)),
        lambda store: store.set_key_lock(KeyLock(lock.kind, lock.name, None, first.id)),
    )
    three = commits(in_transaction(second, inserted(spawned), inserted(other)))
    of_three, of_one = costs(stores, three)
    assert of_three.write == 3 * of_one.write


@pytest.mark.parametrize("count", [0, 1, 36, 110])
def test_queries_of_so_many_entries(stores: Stores, count: int) -> None:
    place = Place(f"q{count}", State.ENQUEUED, 0)
    at = NOW + timedelta(microseconds=123_457)
    tasks = [
        structs.replace(
            task_in(State.ENQUEUED),
            id=new_id(),
            place=place,
            scheduled_at=at + timedelta(microseconds=10 * number),
            expires_at=None if number % 2 else at,
        )
        for number in range(count)
    ]
    if tasks:
        assert_same(stores, commits(*map(inserted, tasks)))

    assert_same(
        stores,
        lambda store: entries(store, place, 500),
        lambda store: entries(store, place, 30),
        lambda store: store.count(place, now=None),
        lambda store: store.count(place, now=NOW),
    )


def entries(store: Store, place: Place, limit: int) -> tuple[Entry, ...]:
    return store.entries(place, limit=limit).entries


@pytest.mark.parametrize("size", [10, 950, 4100])
def test_records_of_every_size(stores: Stores, size: int) -> None:
    kind = f"kind{size}"
    ends = NOW + timedelta(days=1)

    def record(name: str, version: int = 1, text: str = "x" * size) -> Record:
        return Record(kind, name, {"text": text}, version, ends)

    assert_same(
        stores,
        lambda store: store.put_record(record("a"), replaces=None),
        lambda store: store.put_record(record("a", 2, "small"), replaces=1),
        lambda store: store.put_record(record("a", 3), replaces=2),
        lambda store: store.put_records([(record("b"), None)]),
        lambda store: store.put_records([(record("b", 2), 1)]),
        lambda store: store.record(kind, "a"),
        lambda store: store.record(kind, "none"),
        lambda store: store.records(kind, limit=10),
        lambda store: store.records(kind, limit=10, consistent=False),
        lambda store: store.records(kind, prefix="b", limit=10),
        lambda store: store.records(kind, prefix="z", limit=10),
        lambda store: store.records("nothing", limit=10, consistent=False),
        lambda store: store.renew_record(record("a", 4)),
        lambda store: store.renew_record(record("d")),
        lambda store: store.leave_note(kind, "a", "stop", expects=None),
        lambda store: store.drop_record(kind, "a"),
        lambda store: store.drop_record(kind, "a"),
        lambda store: store.drop_record(kind, "b", version=2),
    )
    two = [(record("e"), None), (record("f"), None)]
    of_two, of_one = costs(stores, lambda store: store.put_records(two))
    assert of_two.write == 2 * of_one.write
    refused = costs(stores, lambda store: store.put_records(two))
    assert refused[0].write >= refused[1].write == 4
