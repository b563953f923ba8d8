"""Every statement that a change can become, sent to AWS's own engine.

It must be well formed there, hold when the domain says that it may, and leave what the domain says
that it leaves.  The same goes for the single write of each change; as their items are the same, so
are their units, which this engine tells of single writes alone.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

import pytest
from msgspec import structs

from headrace.domain import settle
from headrace.domain.change import Change, Done, KeyLock, Outcome
from headrace.domain.lifecycle import LIFECYCLE, Action, rule
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.local.tables import TableNames
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.dynamodb.planned import planned, task_in

_NUMBERS: Final = count()

HEARTBEAT: Final = rule(Action.HEARTBEAT, State.INFLIGHT, State.INFLIGHT)


def given_up() -> list[Change]:
    """Return the changes by which a task in flight is not tried again."""
    task, now = task_in(State.INFLIGHT), task_in(State.INFLIGHT).created_at
    mail = Queue("mail", QueueSettings(), now, now)
    over = structs.replace(task, expires_at=now)
    once = structs.replace(task, retry=RetryStrategy(Backoff.FIXED, max_retries=0, base_seconds=0))
    return [
        settle.reclaim(once, mail, now=now, spread=0.5),
        settle.release(over, mail, now=now, delay=0),
        settle.release(over, mail, now=now, reason=settle.ReleaseReason.GROUP_CLOSED),
    ]


CHANGES: Final[list[Change]] = [
    *planned(),
    *given_up(),
]


def named(change: Change) -> str:
    return f"{change.rule.action}-{'-'.join((*change.put, *change.clear))[:40]}"


@pytest.fixture(scope="module", params=[pytest.param("batch", marks=pytest.mark.gate), "single"])
def store(
    request: pytest.FixtureRequest, raw_dynamodb: RawClient, module_tables: TableNames
) -> DynamoStore:
    """Give a store on tables that all changes share, each with another task."""
    return DynamoStore(
        raw_dynamodb,
        tasks_table=module_tables.tasks,
        control_table=module_tables.control,
        sender=request.param,
    )


def before() -> Iterator[Task | None]:
    """Yield what a change may meet: nothing, and a task in each state."""
    yield None
    for state in SHOWN_STATES:
        yield task_in(state)
    expired = task_in(State.ENQUEUED)
    yield structs.replace(expired, expires_at=expired.created_at)


def put(store: DynamoStore, *tasks: Task) -> None:
    births = [Change(HEARTBEAT, task.id, insert=task) for task in tasks]
    assert all(isinstance(outcome, Done) for outcome in store.commit(births))


@pytest.mark.parametrize("change", CHANGES, ids=named)
def test_the_engine_takes_a_change_exactly_when_and_as_the_domain_does(
    store: DynamoStore, change: Change
) -> None:
    met: dict[str, Task | None] = {}
    for there in before():
        task_id = f"t-{next(_NUMBERS)}"
        met[task_id] = structs.replace(there, id=task_id) if there is not None else None
    put(store, *filter(None, met.values()))
    made: list[tuple[Change, Outcome]] = []
    for task_id in met:
        requested = structs.replace(change, task_id=task_id)
        if change.insert is not None:
            requested = structs.replace(
                requested, insert=structs.replace(change.insert, id=task_id)
            )
        for lock in change.also:
            assert isinstance(lock, KeyLock)
            owner = store.key_lock(lock.kind, lock.name)
            store.set_key_lock(KeyLock(lock.kind, lock.name, None, owner))
            if lock.expects is not None:
                store.set_key_lock(KeyLock(lock.kind, lock.name, lock.expects, None))

        made += zip([requested], store.commit([requested]), strict=True)

    hidden = {name: left for name, left in store.tombstones(list(met)).items() if not left.ended_in}
    found = store.read(list(met)) | hidden
    for (task_id, task), (requested, outcome) in zip(met.items(), made, strict=True):
        stored = found.get(task_id)
        if requested.allowed(task):
            assert isinstance(outcome, Done)
            assert stored == requested.apply(task)
        else:
            assert isinstance(outcome, Done) == requested.already_done(task)
            assert stored == task


def test_every_row_of_the_lifecycle_is_among_them() -> None:
    assert {change.rule for change in CHANGES} == set(LIFECYCLE)
