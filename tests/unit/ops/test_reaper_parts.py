"""How many passes of the reaper there are at a time, and what each of them takes."""

import json
from datetime import timedelta

import pytest

from headrace.domain.task import Place, State
from headrace.store.base import Position
from headrace.store.records.reaper import PARTS, Left, ReaperPart, parts_for
from headrace.testing.conditions import START

MINUTE = timedelta(minutes=1)
NOW = START + MINUTE


def left(part: int, parts: int, used: float = 0.02, *, cut: bool = False, late: int = 0) -> Left:
    return Left(part, parts, START - late * MINUTE, used, cut)


@pytest.mark.parametrize(
    ("last", "parts"),
    [
        ([], 1),
        ([left(0, 1, 1.0, cut=True)], PARTS),
        ([left(0, 1, 0.51)], 2),
        ([left(0, 1, 0.5)], 1),
        ([left(n, 8, 0.375) for n in range(8)], 6),
        ([left(n, 8, 0.05) for n in range(8)], 1),
        ([left(n, 8, 0.9, cut=n == 5) for n in range(8)], PARTS),
        ([left(n, 2, 0.9) for n in range(2)], 4),
        ([left(n, 8, 0.9) for n in range(8)], 15),
        ([left(n, 16, 0.9) for n in range(16)], PARTS),
    ],
)
def test_there_are_as_many_as_the_last_ones_have_shown_it_takes(
    last: list[Left], parts: int
) -> None:
    assert parts_for(last, NOW) == parts


def test_who_was_called_and_did_not_come_is_not_called_again_at_once() -> None:
    came = [left(n, 8, 1.0, cut=True) for n in (0, 1, 2, 5)]
    old = [left(n, 8, 1.0, late=1) for n in (3, 4)]

    assert parts_for(came + old, NOW) == 4
    assert parts_for([left(0, 8)], NOW) == 1


def test_what_is_long_ago_says_nothing() -> None:
    assert parts_for([left(0, 1, 1.0, cut=True)], NOW + 20 * MINUTE) == 1


@pytest.mark.parametrize("parts", range(1, PARTS + 1))
def test_every_number_belongs_to_one_part(parts: int) -> None:
    every = [ReaperPart(number, parts, NOW, NOW) for number in range(parts)]

    assert [sum(part.holds(number) for part in every) for number in range(100)] == [1] * 100


def test_a_part_is_the_same_behind_its_event_and_a_timers_event_is_none() -> None:
    part = ReaperPart(3, 8, NOW, NOW + MINUTE)

    assert ReaperPart.of(json.loads(json.dumps(part.event()))) == part
    assert ReaperPart.of({"source": "aws.events", "detail": {}}) is None


def test_what_is_left_is_the_same_behind_its_record() -> None:
    at = Position(NOW, "tsk_1")
    ended = Left(2, 8, NOW, 1.25, True, "mail", {Place("mail", State.INFLIGHT, 3): at})  # noqa: FBT003

    assert Left.of(ended.record()) == ended
