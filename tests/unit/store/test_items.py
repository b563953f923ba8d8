"""A task survives the way into the table and back, and a small one stays within one write unit."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DeadReason, ErrorKind, Hop, Place, State, Task, TaskError
from headrace.store.dynamo.stream import writes_of
from headrace.store.items import Value, from_item, to_item

FIRST, LAST = datetime(1970, 1, 1), datetime(9998, 12, 31)  # noqa: DTZ001  hypothesis adds the zone
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


@settings(max_examples=30)
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


# -- records of the stream -------------------------------------------------------------------------


def test_a_removal_by_anyone_but_the_table_is_a_delete() -> None:
    records: list[Any] = [
        {"dynamodb": {"SequenceNumber": "1", "ApproximateCreationDateTime": 1}, **identity}
        for identity in (
            {},
            {"userIdentity": None},
            {"userIdentity": "me"},
            {"userIdentity": {"principalId": "me"}},
            {"userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}},
        )
    ]

    writes, _ = writes_of(records)

    assert [write.forgotten for write in writes] == [False, False, False, False, True]
