"""A result is what the function's type hint says: for checkers, and when the program runs.

Each ``assert_type`` is checked by mypy (``make check``) and says nothing when it runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_type, cast

import pytest

from headrace import App, Context, Unreadable
from headrace.testing import MemoryService

app = App(queue="work")


@dataclass(frozen=True)
class Weather:
    place: str
    at: datetime


@app.task
def weather(place: str) -> Weather:
    return Weather(place, datetime(2026, 11, 21, tzinfo=UTC))


@app.task(max_retries=3)
async def pair(ctx: Context, number: int) -> tuple[int, str]:
    return number, ctx.task.id


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


def test_of_a_coroutine_function_it_is_what_is_awaited() -> None:
    made = pair.enqueue(3)
    result = made.result()

    assert_type(result, tuple[int, str])
    assert result == (3, made.id)
    for one in pair.enqueue_each([{"number": 5}]):
        assert_type(one.result(), tuple[int, str])
        assert one.result()[0] == 5


def test_what_does_not_fit_the_hint_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="wrong: result expected `int`, got `str`"):
        wrong.enqueue().result()
