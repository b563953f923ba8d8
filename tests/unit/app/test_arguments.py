"""The arguments of task functions: checked where they are given, and where they arrive."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Context
from headrace.domain.errors import InvalidRequest
from headrace.testing import MemoryService
from tests.unit.app.app_runner import call, run


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    to: str
    copies: list[int]


@dataclass
class Album:
    covers: list[Path]


GIVEN: dict[str, Any] = {
    "address": Address("a", [1, 2]),
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "id": UUID(int=7),
    "colour": Colour.RED,
    "price": Decimal("1.10"),
    "names": {1: ["x", None]},
    "wait": timedelta(minutes=2),
    "tags": {"a"},
}
SEEN: list[dict[str, Any]] = []


def everything(
    address: Address,
    at: datetime,
    id: UUID,
    colour: Colour,
    price: Decimal,
    names: dict[int, list[str | None]],
    wait: timedelta | None = None,
    tags: set[str] = frozenset(),  # type: ignore[assignment]
) -> None:
    SEEN.append(locals())


def send(to: str, subject: str = "hi", *, urgent: bool = False) -> None: ...


def refused(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, str]:
    """Return what is wrong with a call, by argument."""
    task = App().task(queue="mail")(function)
    with pytest.raises(InvalidRequest) as caught:
        task.s(*args, **kwargs)
    return {error.field: error.message for error in caught.value.errors}


def test_arguments_of_many_types_arrive_as_they_were_sent() -> None:
    app = App()
    task = app.task(queue="mail")(everything)
    with MemoryService() as service, service.serving(app):
        task.enqueue(**GIVEN)
        service.run(app)

    assert SEEN == [GIVEN]


AN_OPTION = (
    "is no argument of send(to, subject, urgent); as an option it is"
    " send.options(delay=…).enqueue(…)"
)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((5,), {}, {"args.to": "expected `str`, got `int`"}),
        ((), {}, {"args.to": "must be given: send(to, subject, urgent)"}),
        (("a",), {"cc": 1}, {"args.cc": "is no argument of send(to, subject, urgent)"}),
        (("a",), {"delay": 5}, {"args.delay": AN_OPTION}),
        (("a",), {"to": "b"}, {"args.to": "is given twice"}),
        (
            ("a", "b", True),
            {},
            {"args": "has 3 without a name; send(to, subject, urgent) takes 2"},
        ),
        (
            ("\ud800",),
            {},
            {"args.to": "cannot be written as JSON: text holds half of a surrogate pair"},
        ),
    ],
)
def test_what_does_not_fit_is_named(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, str]
) -> None:
    assert refused(send, *args, **kwargs) == expected


def test_every_bad_argument_is_named_with_its_place_inside() -> None:
    given = {**GIVEN, "address": Address("a", [1, "2"]), "names": {1: ["x", 5]}, "price": "much"}  # type: ignore[list-item]

    errors = refused(everything, **given)

    assert errors.keys() == {"args.address.copies[1]", "args.names[...][1]", "args.price"}


def test_what_json_cannot_carry_is_refused_naming_the_argument() -> None:
    def take(fine: str, thing: Any) -> None: ...

    loop: list[Any] = []
    loop.append(loop)
    for value in (float("nan"), object(), {(1, 2): 3}, loop):
        assert list(refused(take, "x", value)) == ["args.thing"]


def _positional_only(to: str, /) -> None: ...


def _any_number(*to: str) -> None: ...


def _any_name(**to: str) -> None: ...


def _yields() -> Any:
    yield


def _two_contexts(a: Context, b: Context) -> None: ...


def _unsupported(to: int | Address | App) -> None: ...


def _unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _path(src: Path | None) -> None: ...


def _paths(src: Album) -> None: ...


def _event(src: dict[str, threading.Event]) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_positional_only, "to: str is positional-only"),
        (_any_number, r"\*to: str takes any number"),
        (_any_name, r"\*\*to: str takes arguments of any name"),
        (_yields, "has a yield in it"),
        (_two_contexts, "asks for the Context twice: a, b"),
        (_unsupported, "argument to: Type unions"),
        (_unknown, "'Nowhere' is not defined"),
        (_path, "src has a Path, which cannot travel as JSON; use str"),
        (_paths, "src has a Path"),
        (_event, "which cannot travel as JSON$"),
        (print, "is no function"),
        ([].append, "is no function"),
    ],
)
def test_what_cannot_be_a_task_is_refused_at_declaration(
    function: Callable[..., Any], why: str
) -> None:
    for declare in (App().task, App().handler(queue="mail")):
        with pytest.raises(TypeError, match=why):
            declare(function)


def test_a_method_is_refused_at_declaration_and_a_static_one_is_not() -> None:
    app = App()
    with pytest.raises(TypeError, match=r"Mailer\.send is a method, and its self cannot travel"):

        class Mailer:
            @app.task
            def send(self, to: str) -> None: ...

    class Post:
        @staticmethod
        @app.task(queue="mail")
        def send(to: str) -> None: ...

    assert Post.send.s("ada").payload["args"] == {"to": "ada"}


def test_an_argument_that_does_not_fit_on_arrival_is_rejected_by_name() -> None:
    app = App()
    app.task(name="send")(send)
    app.queue("mail", work=True)

    task = run(app, call("send", to=5, cc="x"))

    assert task.dead_reason == "rejected"
    assert "args.to expected `str`, got `int`" in task.errors[0].message
    assert "args.cc is no argument of send(to, subject, urgent)" in task.errors[0].message


def test_a_raw_payload_becomes_the_type_it_is_asked_for_as() -> None:
    app = App()

    @app.handler(queue="mail")
    def load(ctx: Context, payload: Address) -> str:
        return f"{ctx.queue} {payload.to}"

    assert run(app, {"to": "a", "copies": []}).result == "mail a"
    wrong = run(app, {"to": "a", "copies": ["x"]})
    assert "payload.copies[0] expected `int`, got `str`" in wrong.errors[0].message
    assert wrong.dead_reason == "rejected"


def test_a_context_without_its_hint_is_explained() -> None:
    def total(ctx) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 (what is forgotten)
        pass

    assert "write ctx: Context" in refused(total)["args.ctx"]
