"""A result is what the function's type hint says: for checkers, and when the program runs.

Each ``assert_type`` is checked by mypy (``make check``) and says nothing when it runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_type, cast

import pytest

from headrace import App, Unreadable
from headrace.testing import MemoryService

app = App(queue="work")


@dataclass(frozen=True)
class Weather:
    place: str
    at: datetime


@app.task
def weather(place: str) -> Weather:
    return Weather(place, datetime(2026, 11, 21, tzinfo=UTC))


@app.task
def wrong() -> int:
    return cast("int", "no number")


@pytest.fixture(autouse=True)
def service() -> Iterator[MemoryService]:
    with MemoryService() as service, service.serving(app):
        yield service


def test_it_is_of_the_type_that_the_function_returns() -> None:
    made = weather.enqueue("Oslo")
    result = made.result(timeout=60)

    assert_type(result, Weather)
    assert result == Weather("Oslo", datetime(2026, 11, 21, tzinfo=UTC))
    assert_type(weather.options(delay=1).enqueue("Oslo").result(), Weather)
    many = [task.result() for task in weather.enqueue_many([{"place": "a"}, {"place": "b"}])]
    assert_type(many, list[Weather])
    assert [one.place for one in many] == ["a", "b"]
    with pytest.raises(Exception, match="place"):
        weather.enqueue(place=1)  # type: ignore[arg-type]


def test_what_does_not_fit_the_hint_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="wrong: result expected `int`, got `str`"):
        wrong.enqueue().result()
