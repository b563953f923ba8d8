"""Texts are cut to fit: the longest gives way first, and says so."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http.report_bodies import shorten

ROOM = 200


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=400), max_size=3)


@given(texts)
def test_what_comes_out_fits(given_texts: list[str]) -> None:
    assert sum(map(_size, shorten(given_texts, ROOM))) <= ROOM


@given(texts)
def test_what_fits_is_left_alone(given_texts: list[str]) -> None:
    if sum(map(_size, given_texts)) <= ROOM:
        assert shorten(given_texts, ROOM) == given_texts


def test_only_the_longest_is_cut_while_that_is_enough() -> None:
    short, longest, middle = shorten(["a" * 20, "b" * 4000, "c" * 60], ROOM)

    assert (short, middle) == ("a" * 20, "c" * 60)
    assert len(longest.encode()) == ROOM - 80


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\0", '"'])
def test_the_room_is_used(letter: str) -> None:
    (cut,) = shorten([letter * 1000], ROOM)

    assert ROOM - _size(letter) < _size(cut) <= ROOM
