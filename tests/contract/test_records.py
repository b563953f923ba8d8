"""What every store promises about control records."""

from dataclasses import replace

import pytest

from headrace.store.base import Record, Store, metered

ONE, TWO = Record("key", "one", {"n": 1}), Record("name", "two", {"n": 2}, version=7)
LARGE = 2**80 - 3  # an id as a number


def stored(store: Store) -> list[tuple[int, int] | None]:
    found = (store.record(record.kind, record.name) for record in (ONE, TWO))
    return [(record.body["n"], record.version) if record else None for record in found]


def test_records_are_written_together(store: Store) -> None:
    assert store.put_records([(ONE, None), (TWO, None)])
    assert stored(store) == [(1, 1), (2, 7)]

    one, two = replace(ONE, body={"n": 3}, version=2), replace(TWO, body={"n": 4}, version=LARGE)
    assert store.put_records([(one, 1), (two, 7)])
    assert stored(store) == [(3, 2), (4, LARGE)]


@pytest.mark.parametrize("versions", [(None, None), (1, None), (None, 7), (1, 6), (2, 7)])
def test_of_records_written_together_all_or_none_is_written(
    store: Store, versions: tuple[int | None, int | None]
) -> None:
    store.put_records([(ONE, None), (TWO, None)])
    one, two = replace(ONE, body={"n": 3}), replace(TWO, body={"n": 4})

    assert not store.put_records([(one, versions[0]), (two, versions[1])])

    assert stored(store) == [(1, 1), (2, 7)]


def test_records_written_together_cost_twice(store: Store) -> None:
    with metered() as meter:
        store.put_records([(ONE, None), (TWO, None)])

    # In memory nothing costs, and DynamoDB Local does not count what a transaction costs more.
    assert (meter.write, meter.read) in ((0, 0), (2, 0), (4, 0))


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
