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


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\0", '"'])
def test_the_room_is_used(letter: str) -> None:
    (cut,) = shorten([letter * 1000], ROOM)

    assert ROOM - _size(letter) < _size(cut) <= ROOM
