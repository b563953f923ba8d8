"""What every store promises about rate limits: numbers that many add to at a time, exactly."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.rate import Bucket, Draw, Rate
from headrace.store.base import Store
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.gate

NOW = ManualClock()()
RATE = Rate(1_000_000_000, timedelta(hours=1))
AT = RATE.at(NOW)


def a_draw(tokens: int, *, after: int = AT, rate: Rate = RATE) -> Draw:
    return Draw(rate, NOW, rate.length(tokens), after, AT + rate.span)


def test_the_first_draw_makes_the_bucket(store: Store) -> None:
    assert store.bucket("mail") is None

    there, made = store.draw("mail", a_draw(3), seen=None)

    assert (there, made) == (Bucket(AT + RATE.length(3), RATE, NOW), True)
    assert store.bucket("mail") == there
    assert store.bucket("news") is None


@pytest.mark.parametrize("seen", ["nothing", "as it is", "as it was", "ahead"])
def test_a_draw_begins_where_the_last_one_ended_whatever_was_seen(store: Store, seen: str) -> None:
    first, _ = store.draw("mail", a_draw(3), seen=None)
    assert first is not None
    known = {
        "nothing": None,
        "as it is": first,
        "as it was": replace(first, given=0),
        "ahead": replace(first, given=first.given + 1),
    }[seen]

    there, made = store.draw("mail", replace(a_draw(2), since=NOW + timedelta(1)), seen=known)

    assert (there, made) == (Bucket(AT + RATE.length(5), RATE, NOW), True)


@pytest.mark.parametrize("seen", ["nothing", "as it is", "ahead"])
def test_a_draw_after_an_idle_time_begins_where_it_may(store: Store, seen: str) -> None:
    first, _ = store.draw("mail", a_draw(3), seen=None)
    assert first is not None
    later = AT + RATE.length(100)
    known = {"nothing": None, "as it is": first, "ahead": replace(first, given=later + 1)}[seen]

    there, made = store.draw("mail", a_draw(2, after=later), seen=known)

    assert (there, made) == (Bucket(later + RATE.length(2), RATE, NOW), True)


def test_a_draw_that_would_end_too_late_is_refused_and_shows_the_bucket(store: Store) -> None:
    first, _ = store.draw("mail", a_draw(RATE.max_tokens - 1), seen=None)

    assert store.draw("mail", a_draw(2), seen=first) == (first, False)
    assert store.draw("mail", a_draw(2), seen=None) == (first, False)
    assert store.draw("mail", a_draw(1), seen=first)[1]


def test_a_draw_at_another_rate_is_refused_and_shows_the_bucket(store: Store) -> None:
    first, _ = store.draw("mail", a_draw(1), seen=None)
    other = Rate(5, timedelta(hours=1))

    assert store.draw("mail", a_draw(1, rate=other), seen=first) == (first, False)


def test_a_bucket_is_replaced_only_as_it_was_seen(store: Store) -> None:
    first, _ = store.draw("mail", a_draw(1), seen=None)
    assert first is not None
    other = Bucket(AT, Rate(5, timedelta(hours=1)), NOW + timedelta(1))

    assert not store.replace_bucket("mail", other, expects=None)
    assert not store.replace_bucket("mail", other, expects=replace(first, given=first.given + 1))
    assert store.replace_bucket("mail", other, expects=first)
    assert store.bucket("mail") == other
    assert store.replace_bucket("news", other, expects=None)


def test_a_bucket_can_be_dropped_whether_it_is_there_or_not(store: Store) -> None:
    store.draw("mail", a_draw(1), seen=None)

    for _ in range(2):
        store.drop_bucket("mail")

    assert store.bucket("mail") is None


def test_sixteen_threads_draw_every_token_once_without_a_refusal(store: Store) -> None:
    first, _ = store.draw("mail", a_draw(1), seen=None)

    def work(_: int) -> list[int]:
        ends = []
        for _ in range(20):
            there, made = store.draw("mail", a_draw(3), seen=first)
            assert made
            assert there is not None
            ends.append(there.given)
        return ends

    with ThreadPoolExecutor(16) as pool:
        ends = sorted(end for some in pool.map(work, range(16)) for end in some)

    assert ends == [AT + RATE.length(1 + 3 * number) for number in range(1, 321)]
