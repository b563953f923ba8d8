"""What every store promises about pools: never more in one than there is room for."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.store.base import Store

pytestmark = pytest.mark.gate


def test_reservations_are_put_into_a_pool_as_long_as_there_is_room(store: Store) -> None:
    assert store.reserve("mail", 0, ["a"], room=3) == (frozenset("a"), True)
    assert store.reserve("mail", 0, ["b", "c"], room=3) == (frozenset("abc"), True)
    assert store.reserve("mail", 0, ["d"], room=3) == (frozenset("abc"), False)
    assert store.reserve("mail", 1, ["d"], room=3) == (frozenset("d"), True)
    assert store.reserve("news", 0, ["d"], room=1) == (frozenset("d"), True)


def test_of_some_that_do_not_fit_together_none_is_put_in(store: Store) -> None:
    store.reserve("mail", 0, ["a"], room=3)

    assert store.reserve("mail", 0, ["b", "c", "d"], room=3) == (frozenset("a"), False)
    assert store.reserve("mail", 2, ["b", "c", "d"], room=2) == (frozenset(), False)


def test_what_is_in_a_full_pool_already_may_be_put_in_again(store: Store) -> None:
    """A repeat after a lost answer."""
    store.reserve("mail", 0, ["a", "b"], room=2)

    assert store.reserve("mail", 0, ["a", "b"], room=2) == (frozenset("ab"), True)
    assert store.reserve("mail", 0, ["b"], room=2) == (frozenset("ab"), True)
    assert store.reserve("mail", 0, ["b", "c"], room=2) == (frozenset("ab"), False)


def test_a_pool_that_holds_more_than_there_is_room_for_now_takes_nothing(store: Store) -> None:
    store.reserve("mail", 0, ["a", "b", "c"], room=3)

    assert store.reserve("mail", 0, ["d"], room=1) == (frozenset("abc"), False)


def test_what_is_taken_out_makes_room_and_what_is_not_there_is_no_matter(store: Store) -> None:
    store.reserve("mail", 0, ["a", "b", "c"], room=3)

    assert store.free("mail", 0, ["a", "x"]) == frozenset("bc")
    assert store.free("mail", 0, ["a"]) == frozenset("bc")
    assert store.reserve("mail", 0, ["d"], room=3) == (frozenset("bcd"), True)
    assert store.free("mail", 0, ["b", "c", "d"]) == frozenset()
    assert store.free("mail", 7, ["a"]) == frozenset()
    assert store.reserve("mail", 0, ["a"], room=1) == (frozenset("a"), True)


def test_pools_are_shown_by_their_numbers_without_the_empty_ones(store: Store) -> None:
    for pool in (0, 2, 9, 10, 11, 624):
        store.reserve("mail", pool, [f"t{pool}"], room=1)
    store.reserve("mails", 10, ["other"], room=1)
    store.free("mail", 11, ["t11"])

    assert store.pools("mail", 2, 11) == {pool: frozenset([f"t{pool}"]) for pool in (2, 9, 10)}
    assert list(store.pools("mail", 0, 624)) == [0, 2, 9, 10, 624]
    assert store.pools("news", 0, 624) == {}


def test_all_pools_of_a_queue_are_dropped(store: Store) -> None:
    for queue in ("mail", "mails"):
        store.reserve(queue, 3, ["a"], room=1)

    store.drop_pools("mail")
    store.drop_pools("news")

    assert (store.pools("mail", 0, 9), len(store.pools("mails", 0, 9))) == ({}, 1)


def test_sixteen_threads_never_put_in_more_than_there_is_room_for(store: Store) -> None:
    def work(number: int) -> Sequence[str]:
        texts = [f"{number}-{place}" for place in range(3)]
        return texts if store.reserve("mail", 0, texts, room=10)[1] else ()

    with ThreadPoolExecutor(16) as pool:
        put_in = [text for some in pool.map(work, range(16)) for text in some]

    assert len(put_in) == 9
    assert store.pools("mail", 0, 0) == {0: frozenset(put_in)}
