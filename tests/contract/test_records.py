"""What every store promises about control records."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace.domain import plan
from headrace.domain.change import Change, Refused
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.store.base import Record, RecordConflict, RecordWrite, Store

pytestmark = pytest.mark.gate

ONE, TWO = Record("key", "one", {"n": 1}), Record("name", "two", {"n": 2}, version=7)
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
LARGE = 2**80 - 3  # an id as a number


def stored(store: Store) -> list[tuple[int, int] | None]:
    found = (store.record(record.kind, record.name) for record in (ONE, TWO))
    return [(record.body["n"], record.version) if record else None for record in found]


@pytest.mark.parametrize("versions", [(None, None), (1, None), (None, 7), (1, 6), (2, 7)])
def test_of_records_written_together_all_or_none_is_written(
    store: Store, versions: tuple[int | None, int | None]
) -> None:
    store.put_records([(ONE, None), (TWO, None)])
    one, two = replace(ONE, body={"n": 3}), replace(TWO, body={"n": 4})

    assert not store.put_records([(one, versions[0]), (two, versions[1])])

    assert stored(store) == [(1, 1), (2, 7)]


def new_task(task_id: str, token: str | None = None) -> Change:
    queue = Queue("mail", QueueSettings(), NOW, NOW)
    return plan.enqueue(
        TaskSpec('{"n": 1}'), queue, task_id=task_id, due_at=NOW, now=NOW, token=token
    )


def test_tasks_are_inserted_with_records_and_only_with_them(store: Store) -> None:
    assert store.put_records([(ONE, None)], tasks=[new_task("tsk_a"), new_task("tsk_b")])
    assert set(store.read(["tsk_a", "tsk_b"])) == {"tsk_a", "tsk_b"}

    one = replace(ONE, body={"n": 3}, version=2)
    assert not store.put_records([(one, 7)], tasks=[new_task("tsk_c")])
    assert not store.put_records([(one, 1)], tasks=[new_task("tsk_c"), new_task("tsk_b")])
    assert store.read(["tsk_c"]) == {}
    assert stored(store)[0] == (1, 1)

    assert store.put_records([(one, 1)], tasks=[new_task("tsk_c")])
    assert store.read(["tsk_c"])["tsk_c"].payload == '{"n": 1}'
    assert stored(store)[0] == (3, 2)


def test_a_record_is_dropped_if_it_has_the_version_that_is_named(store: Store) -> None:
    store.put_records([(ONE, None), (replace(TWO, version=LARGE), None)])

    assert not store.drop_record("key", "one", version=2)
    assert not store.drop_record("name", "two", version=LARGE - 1)
    assert not store.drop_record("name", "none", version=1)
    assert stored(store) == [(1, 1), (2, LARGE)]
    assert store.drop_record("key", "one", version=1)
    assert store.drop_record("name", "two", version=LARGE)
    assert stored(store) == [None, None]
    assert not store.drop_record("key", "one")


@pytest.mark.parametrize("replaces", [None, 2])
def test_where_the_noting_is_refused_no_change_is_made(store: Store, replaces: int | None) -> None:
    store.put_record(ONE, replaces=None)

    with pytest.raises(RecordConflict):
        store.commit([new_task("tsk_a")], noting=RecordWrite(replace(ONE, body={"n": 3}), replaces))

    assert stored(store)[0] == (1, 1)
    assert not store.read(["tsk_a"])


def test_a_change_that_is_refused_leaves_the_noting(store: Store) -> None:
    store.commit([new_task("tsk_a", "1")])

    (outcome,) = store.commit([new_task("tsk_a", "2")], noting=RecordWrite(ONE, None))

    assert isinstance(outcome, Refused)
    assert stored(store)[0] == (1, 1)
