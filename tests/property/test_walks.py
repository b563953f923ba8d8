"""Walks take the rules that may be taken, the same ones for a seed, and say where they fail."""

import random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.walks import walk, walk_far


class Counting(RuleBasedStateMachine):
    """Counts what it is told to, and fails beyond ``most``."""

    most = 10**9
    log: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.begun = False
        self.total = 0

    @initialize(first=st.integers(1, 3))
    def begin(self, first: int) -> None:
        self.begun = True
        self.total += first

    @rule(
        number=st.integers(0, 9),
        twice=st.booleans(),
        word=st.sampled_from(["a", "b"]),
        maybe=st.none() | st.integers(100, 101),
        some=st.lists(st.just(7), min_size=1, max_size=2),
    )
    def add(
        self, number: int, word: str, maybe: int | None, some: list[int], *, twice: bool
    ) -> None:
        assert 0 <= number <= 9
        assert word in "ab"
        assert maybe in (None, 100, 101)
        assert some in ([7], [7, 7])
        self.log.append((number, twice, word, maybe, some, random.random()))
        self.total += number * (2 if twice else 1)

    @precondition(lambda self: self.total > 20)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        assert self.total > 20
        self.total -= data.draw(st.integers(20, 21))

    @invariant()
    def not_too_many(self) -> None:
        assert self.begun
        assert self.total <= self.most, "too many"


def test_a_seed_takes_the_same_steps_each_time() -> None:
    logs = []
    for seed in ("1", "1", "2"):
        Counting.log = []
        before = random.getstate()
        walk(Counting, seed)
        assert random.getstate() == before
        logs.append(Counting.log)

    assert logs[0] == logs[1] != logs[2]
    assert {value for each in logs[0] for value in (each[1], each[3])} >= {True, False, None, 100}


def test_what_fails_says_its_seed_and_its_steps_which_fail_again() -> None:
    class Strict(Counting):
        most, log = 15, []

    with pytest.raises(AssertionError, match="too many") as failed:
        walk_far(Strict, 3_000, seed="s")

    (note,) = failed.value.__notes__
    first, *steps = note.splitlines()
    assert first.startswith('walk(Strict, "s.')
    assert steps[0].startswith("    begin(first=")
    assert "    add(number=" in steps[-1]
    with pytest.raises(AssertionError, match="too many") as again:
        walk(Strict, first.split('"')[1])
    assert again.value.__notes__ == [note]


def test_a_kind_of_drawing_that_walks_do_not_know_is_refused() -> None:
    class Odd(RuleBasedStateMachine):
        @rule(text=st.sampled_from(["a"]).map(str))
        def speak(self, text: str) -> None:
            raise AssertionError(text)

    with pytest.raises(TypeError, match="do not know how to draw"):
        walk(Odd, "1")
