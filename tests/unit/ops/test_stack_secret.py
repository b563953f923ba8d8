"""Ids that the service derives under its secret."""

from datetime import UTC, datetime

import pytest

from headrace.domain.ids import WHOLE_ID_RE, derived_task_id
from headrace.ops.shared.stack_secret import IDS, DerivedIds, StackSecret
from headrace.store.sqlite import SqliteStore

BORN = datetime(2031, 5, 4, 12, tzinfo=UTC)


def test_all_processes_of_a_service_derive_the_same_id() -> None:
    store = SqliteStore(":memory:")
    one, other = (DerivedIds(StackSecret(store, IDS)) for _ in range(2))

    assert one.task_id(BORN, "unique", "mail", "key", 60.0) == other.task_id(
        BORN, "unique", "mail", "key", 60.0
    )
    assert WHOLE_ID_RE.fullmatch(one.task_id(BORN, "unique"))


def test_two_services_derive_different_ids_from_the_same_facts() -> None:
    one, other = (DerivedIds(StackSecret(SqliteStore(":memory:"), IDS)) for _ in range(2))

    assert one.task_id(BORN, "end", "tsk_1", 3) != other.task_id(BORN, "end", "tsk_1", 3)
    assert one.task_id(BORN, "end tsk_1 3") != derived_task_id(BORN, "end tsk_1 3")


@pytest.mark.parametrize("facts", [("a b", "c"), ("a", "b c"), ("a", "b", "c"), ('a", "b', "c")])
def test_facts_are_kept_apart(facts: tuple[str, ...]) -> None:
    ids = DerivedIds(StackSecret(SqliteStore(":memory:"), IDS))
    others = [("a b", "c"), ("a", "b c"), ("a", "b", "c"), ('a", "b', "c")]
    others.remove(facts)

    assert ids.task_id(BORN, *facts) not in [ids.task_id(BORN, *other) for other in others]


def test_the_process_that_comes_second_takes_the_secret_of_the_first() -> None:
    store = SqliteStore(":memory:")
    first, second = StackSecret(store, IDS), StackSecret(store, IDS)
    values = {first.value(), second.value(), StackSecret(store, IDS).value()}

    assert len(values) == 1
