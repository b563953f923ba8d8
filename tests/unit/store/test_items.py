"""A task survives the way into the table and back, and a small one stays within one write unit."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import plan, settle
from headrace.domain.ids import new_lease_token, new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settle import Held
from headrace.domain.task import DeadReason, ErrorKind, Hop, Place, State, Task, TaskError
from headrace.store import keys
from headrace.store.items import FIELDS, Item, Value, entry_from_item, from_item, to_item

NOW = datetime(2026, 11, 21, 8, 0, 0, 123_456, tzinfo=UTC)
FIRST, LAST = datetime(1970, 1, 1), datetime(9998, 12, 31)  # noqa: DTZ001  hypothesis adds the zone
KIB = 1024

instants = st.datetimes(FIRST, LAST, timezones=st.just(UTC))
seconds = st.integers(0, 31_536_000) | st.floats(0, 31_536_000)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
texts = st.text(min_size=1)
payloads = st.sampled_from(
    [
        "null",
        "[]",
        '""',
        '{"n": 123456789012345678901234567890}',
        "1e400",
        '{"ü": "\\ud83d\\ude00"}',
    ]
) | st.text(min_size=1)
retries = st.builds(
    RetryStrategy,
    kind=st.sampled_from(Backoff),
    max_retries=st.integers(0, 100),
    base_seconds=seconds,
    max_delay_seconds=seconds,
    jitter=st.floats(0, 1),
    intervals=st.lists(seconds, max_size=3).map(tuple),
)
errors = st.builds(
    TaskError,
    attempt=st.integers(1, 101),
    at=instants,
    worker=st.none() | texts,
    kind=st.sampled_from(ErrorKind),
    type=st.text(),
    message=st.text(),
    detail=st.text(),
)
tasks = st.builds(
    Task,
    id=st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    place=st.builds(Place, names, st.sampled_from(State), st.integers(0, 63)),
    scheduled_at=instants,
    due_at=instants,
    created_at=instants,
    enqueued_at=instants,
    payload=st.none() | payloads,
    tags=st.dictionaries(texts, st.text(), max_size=3),
    dedupe_key=st.none() | texts,
    schedule=st.none() | names,
    expires_at=st.none() | instants,
    keepalive=st.none() | st.integers(1, 43_200) | st.floats(1, 43_200),
    retry=st.none() | retries,
    attempts=st.integers(0, 101),
    version=st.integers(1, 10**12),
    last_move=texts,
    lease_id=st.none() | texts,
    lease_expires_at=st.none() | instants,
    lease_length=st.none() | st.timedeltas(timedelta(0), timedelta(days=400)),
    worker=st.none() | texts,
    progress=st.none() | payloads,
    started_at=st.none() | instants,
    finished_at=st.none() | instants,
    result=st.none() | payloads,
    dead_reason=st.none() | st.sampled_from(DeadReason),
    errors=st.lists(errors, max_size=3).map(tuple),
    trail=st.lists(st.builds(Hop, names, instants), max_size=3).map(tuple),
    retained_until=st.none() | instants.map(lambda moment: moment.replace(microsecond=0)),
    settled_lease_id=st.none() | texts,
    settled_status=st.none() | texts,
    enqueue_token=st.none() | texts,
)


@given(tasks, st.dictionaries(texts, st.sampled_from([{"S": "x"}, {"N": "1"}, {"BOOL": True}])))
def test_any_task_comes_back_as_it_was(task: Task, more: dict[str, Value]) -> None:
    """Also with attributes of a later version, and with numbers as the table writes them.

    DynamoDB drops what a number does not need: 30.0 comes back as 30.
    """
    item = to_item(task)
    assert from_item(item) == task

    assert from_item({**item, **{f"later_{name}": value for name, value in more.items()}}) == task

    if "keepalive" in item:
        item["keepalive"] = {"N": item["keepalive"]["N"].removesuffix(".0")}
    assert from_item(item) == task


@given(tasks)
def test_what_is_not_set_takes_no_room(task: Task) -> None:
    item = to_item(task)

    unset = {attribute for name, (attribute, _) in FIELDS.items() if getattr(task, name) is None}
    assert not unset & item.keys()
    assert ("tags" in item) == bool(task.tags)
    assert {"errors", "trail"} <= item.keys()  # even empty: they are appended to


@given(tasks)
def test_an_index_entry_says_of_a_task_what_the_task_says(task: Task) -> None:
    projected = (keys.TASK_ID, keys.QUEUE_STATE, keys.SCHEDULED_AT, keys.EXPIRES_AT, keys.TTL)
    item = to_item(task)

    entry = entry_from_item({name: item[name] for name in projected if name in item})

    assert (entry.task_id, entry.place) == (task.id, task.place)
    assert entry.scheduled_at == task.scheduled_at
    assert (entry.expires_at, entry.retained_until) == (task.expires_at, task.retained_until)


def test_times_are_stored_in_microseconds_and_the_brooms_in_seconds() -> None:
    until = NOW.replace(microsecond=0)
    (task, *_) = life()
    item = to_item(replace(task, scheduled_at=NOW, expires_at=NOW, retained_until=until))

    assert item[keys.SCHEDULED_AT] == item[keys.EXPIRES_AT] == {"N": "1795248000123456"}
    assert item[keys.TTL] == {"N": "1795248000"}


def test_no_two_fields_share_an_attribute() -> None:
    attributes = [attribute for attribute, _ in FIELDS.values()]

    assert len(set(attributes)) == len(attributes)
    assert set(FIELDS) == set(Task.__dataclass_fields__)


def test_a_small_task_costs_one_unit_a_write_through_its_whole_life() -> None:
    sizes = {task.last_move: item_bytes(to_item(task)) for task in life()}

    assert set(sizes) == {"enqueue", "dequeue", "heartbeat", "fail", "reclaim", "move", "succeed"}
    assert max(sizes.values()) <= KIB, sizes


def test_its_index_entry_costs_one_unit_too() -> None:
    projected = (keys.TASK_ID, keys.QUEUE_STATE, keys.SCHEDULED_AT, keys.EXPIRES_AT, keys.TTL)
    for task in life():
        item = to_item(task)
        entry = {name: item[name] for name in projected if name in item}
        assert item_bytes(entry) + 100 <= KIB  # DynamoDB counts 100 bytes more for each entry


def life() -> Iterator[Task]:
    """Yield a small task after each move: it fails, lapses, moves on, and succeeds."""
    notify = Queue("ngsi.notify", QueueSettings(), NOW, NOW)
    entities = Queue("ngsi.entities", QueueSettings(), NOW, NOW)
    payload = '{"id": "urn:ngsi:Device:1", "temperature": 21.5, "at": "2026-11-21T08:00:00Z"}'
    new = TaskSpec(payload, tags={"service": "smartcity", "path": "/madrid/centro"})
    change = plan.enqueue(new, notify, task_id=new_task_id(NOW), due_at=NOW, now=NOW, token=None)
    task = _after(change.apply(None))
    yield task
    for act in ("fail", "reclaim", "move", "succeed"):
        queue = notify if task.queue == notify.name else entities
        task = _leased(task, queue)
        yield task
        held = Held.of(task)
        match act:
            case "fail":
                error = TaskError(1, NOW, task.worker, ErrorKind.FAILED, "ValueError", "no number")
                change = settle.fail(
                    held, queue, now=NOW, error=error, retryable=True, delay=None, spread=0.5
                )
            case "reclaim":
                change = settle.reclaim(task, queue, now=NOW, spread=0.5)
            case "move":
                beat = settle.heartbeat(held, queue, now=NOW, keepalive=None, progress="50")
                task = _after(beat.apply(task))
                yield task
                change = settle.move(
                    Held.of(task), entities, now=NOW, delay=None, payload=None, tags=None
                )
            case _:
                change = settle.succeed(held, queue, now=NOW, result='{"rows": 3}')
        task = _after(change.apply(task))
        yield task


def _leased(task: Task, queue: Queue) -> Task:
    entry = entry_from_item(to_item(task))
    change = plan.dequeue(
        entry, queue, lease_id=new_lease_token(), now=NOW, worker="host-12:34567", keepalive=None
    )
    return _after(change.apply(task))


def _after(task: Task | None) -> Task:
    assert task is not None
    return task


def item_bytes(item: Item) -> int:
    """Return how much of a write unit *item* takes, by DynamoDB's rules."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Value) -> int:
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(str(inner).encode())
        case "N":
            digits = str(inner).lstrip("-").replace(".", "").strip("0")
            return (len(digits) + 1) // 2 + 1
        case "BOOL":
            return 1
        case "L":
            return 3 + sum(1 + _value_bytes(entry) for entry in inner)
        case "M":
            parts: dict[str, Any] = inner
            return 3 + sum(1 + len(k.encode()) + _value_bytes(v) for k, v in parts.items())
        case _:
            raise LookupError(kind)
