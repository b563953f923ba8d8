"""The arguments of task functions: checked where they are given, and where they arrive."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from headrace import App, Context
from headrace.client.app.signature import Signature
from headrace.domain.errors import InvalidRequest, PayloadTooLarge
from tests.unit.app.app_doubles import FakeControl, FakeHttp, call, leased, run


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    to: str
    copies: list[int]


def everything(
    address: Address,
    at: datetime,
    id: UUID,
    colour: Colour,
    price: Decimal,
    names: dict[int, list[str | None]],
    wait: timedelta | None = None,
    tags: set[str] = frozenset(),  # type: ignore[assignment]
) -> None: ...


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


def send(to: str, subject: str = "hi", *, urgent: bool = False) -> None: ...


def refused(signature: Signature, *args: Any, **kwargs: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        signature.plain(signature.bind(args, kwargs))
    return {error.field: error.message for error in caught.value.errors}


def test_arguments_of_many_types_arrive_as_they_were_sent() -> None:
    signature = Signature.of(everything)
    travelled = msgspec.json.decode(msgspec.json.encode(signature.plain(GIVEN)))
    assert signature.typed(travelled) == GIVEN


def test_positional_and_keyword_arguments_get_their_names_and_defaults_are_not_sent() -> None:
    signature = Signature.of(send)
    assert signature.plain(signature.bind(("a",), {"urgent": True})) == {"to": "a", "urgent": True}


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((5,), {}, {"args.to": "expected `str`, got `int`"}),
        ((), {}, {"args.to": "must be given: send(to, subject, urgent)"}),
        (("a",), {"cc": 1}, {"args.cc": "is no argument of send(to, subject, urgent)"}),
        (("a",), {"to": "b"}, {"args.to": "is given twice"}),
        (
            ("a", "b", True),
            {},
            {"args": "has 3 without a name; send(to, subject, urgent) takes 2"},
        ),
        ((UUID(int=1),), {}, {"args.to": "expected `str`, got `uuid`"}),
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
    assert refused(Signature.of(send), *args, **kwargs) == expected


def test_every_bad_argument_is_named_with_its_place_inside() -> None:
    given = {**GIVEN, "address": Address("a", [1, "2"]), "names": {1: ["x", 5]}, "price": "much"}  # type: ignore[list-item]
    errors = refused(Signature.of(everything), **given)
    assert errors.keys() == {"args.address.copies[1]", "args.names[...][1]", "args.price"}


def test_a_text_of_digits_is_no_number_and_a_truth_value_neither() -> None:
    def count(n: int) -> None: ...

    signature = Signature.of(count)
    assert refused(signature, "5") == {"args.n": "expected `int`, got `str`"}
    assert refused(signature, n=True) == {"args.n": "expected `int`, got `bool`"}


def test_constraints_in_the_hints_are_kept() -> None:
    def count(n: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    assert refused(Signature.of(count), 0) == {"args.n": "expected `int` >= 1"}


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], object(), {(1, 2): 3}, 1j])
def test_what_json_cannot_carry_is_refused_naming_the_argument(value: object) -> None:
    def take(fine: str, thing: Any) -> None: ...

    errors = refused(Signature.of(take), "x", value)
    assert list(errors) == ["args.thing"]
    assert errors["args.thing"].startswith("cannot be written as JSON: ")


def test_a_structure_that_contains_itself_is_refused() -> None:
    def take(thing: Any) -> None: ...

    loop: list[Any] = []
    loop.append(loop)
    assert list(refused(Signature.of(take), loop)) == ["args.thing"]


def _positional_only(to: str, /) -> None: ...


def _any_number(*to: str) -> None: ...


def _any_name(**to: str) -> None: ...


def _yields() -> Any:
    yield


def _two_contexts(a: Context, b: Context) -> None: ...


def _unsupported(to: int | Address | App) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_positional_only, "to: str is positional-only"),
        (_any_number, r"\*to: str takes any number"),
        (_any_name, r"\*\*to: str takes arguments of any name"),
        (_yields, "has a yield in it"),
        (_two_contexts, "asks for the Context twice: a, b"),
        (_unsupported, "argument to: Type unions"),
        (print, "is no function"),
        (Address("a", []), "is no function"),
    ],
)
def test_what_cannot_be_a_task_is_refused_at_declaration(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(TypeError, match=why):
        App(url="http://test", key="k").task(function)


def test_a_type_that_only_checkers_know_is_refused_at_declaration() -> None:
    def take(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="'Nowhere' is not defined"):
        Signature.of(take)


def test_an_argument_that_does_not_fit_on_arrival_is_rejected_by_name() -> None:
    app = FakeHttp().app()
    app.task(name="send")(send)
    report = run(app, call("send", to=5, cc="x"))
    assert (report.status, report.retryable) == ("FAILED", False)
    assert report.error is not None
    assert report.error.type == "Reject"
    assert "args.to expected `str`, got `int`" in report.error.message
    assert report.error.detail == ""  # the handler was never reached
    assert "args.cc is no argument of send(to, subject, urgent)" in report.error.message


def test_the_function_gets_the_types_it_asks_for() -> None:
    app = FakeHttp().app()
    seen: list[Any] = []

    @app.task(name="take")
    def take(address: Address, colour: Colour = Colour.RED) -> None:
        seen.append((address, colour))

    run(app, call("take", address={"to": "a", "copies": [1]}))
    assert seen == [(Address("a", [1]), Colour.RED)]


def test_a_payload_over_the_limit_is_refused_before_it_is_sent() -> None:
    service = FakeHttp()
    task = service.app().task(send)
    with pytest.raises(PayloadTooLarge, match="payload must be at most 262144 bytes of JSON"):
        task.enqueue("a" * 300_000)
    assert service.calls == []


def test_a_raw_payload_becomes_the_type_it_is_asked_for_as() -> None:
    app = FakeHttp().app()
    seen: list[Any] = []

    @app.handler(queue="mail")
    def load(ctx: Context, payload: Address) -> None:
        seen.append((ctx.queue, payload))

    assert run(app, {"to": "a", "copies": []}).status == "SUCCEEDED"
    assert seen == [("mail", Address("a", []))]
    report = run(app, {"to": "a", "copies": ["x"]})
    assert report.error is not None
    assert "payload.copies[0] expected `int`, got `str`" in report.error.message
    assert not report.retryable


def test_a_raw_handler_takes_payload_or_context_or_both_and_nothing_else() -> None:
    app = FakeHttp().app()
    app.handler(queue="a")(lambda payload: payload)
    assert run(app, [1], queue="a").result == [1]

    def alone(ctx: Context) -> Any:
        return ctx.payload

    app.handler(queue="b")(alone)
    assert run(app, [2], queue="b").result == [2]
    with pytest.raises(TypeError, match="payload as one argument, and takes 2"):
        app.handler(queue="c")(lambda one, two: None)
    with pytest.raises(ValueError, match="queue a has a handler already"):
        app.handler(queue="a")(alone)


def test_a_task_is_routed_by_its_name_else_to_its_queues_handler() -> None:
    app = FakeHttp().app()
    app.task(name="send", timeout=timedelta(seconds=9), soft_timeout=8)(send)

    @app.handler(queue="mail", timeout=5)
    async def load(payload: Any) -> None: ...

    route = app.route(leased(call("send", to="a"), queue="elsewhere"))
    assert (route.kind, route.name, route.soft_timeout, route.hard_timeout) == (
        "sync",
        "send",
        8,
        9,
    )
    for payload in ({"task": "send"}, None, 5, {"task": ["send"], "args": {}}):
        route = app.route(leased(payload))
        assert (route.kind, route.hard_timeout) == ("async", 5)
    assert app.route(leased({"x": 1}, queue="elsewhere")).name == "unknown"
    assert app.route(leased(call("other"))).name == "unknown"
    assert app.execute(leased(call("send", to="a")), FakeControl()) is not None


def test_missing_arguments_are_listed_once_with_the_signature() -> None:
    def many(a: int, b: int, c: int, d: int) -> None: ...

    with pytest.raises(InvalidRequest) as caught:
        Signature.of(many).bind((1,), {})
    assert caught.value.detail.startswith("args.b, args.c, args.d must be given: ")
    assert caught.value.detail.count("many(a, b, c, d)") == 1
    assert [error.field for error in caught.value.errors] == ["args.b", "args.c", "args.d"]


@dataclass
class Album:
    covers: list[Path]
    after: "Album | None" = None


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (Path, r"\.thumb: src is a Path, which cannot travel as JSON; use str"),
        (list[Path], r"src has a Path, which cannot travel as JSON; use str"),
        (Path | None, "src has a Path"),
        (Album, "src has a Path"),
        (complex, "src is a complex, which cannot travel as JSON$"),
        (dict[str, threading.Event], "which cannot travel as JSON$"),
    ],
)
def test_what_can_never_be_enqueued_is_refused_at_declaration(hint: Any, why: str) -> None:
    def thumb(src: Any) -> None: ...

    thumb.__annotations__["src"] = hint
    with pytest.raises(TypeError, match=why):
        FakeHttp().app().task(thumb)


@pytest.mark.parametrize("hint", [object, Any, Iterable[int], Address, Colour, set[UUID]])
def test_what_json_can_become_is_taken(hint: Any) -> None:
    def take(thing: Any) -> None: ...

    take.__annotations__["thing"] = hint
    assert Signature.of(take).hints == {"thing": hint}


def test_a_method_is_refused_at_declaration_and_a_static_one_is_not() -> None:
    app = FakeHttp().app()
    with pytest.raises(TypeError, match=r"Mailer\.send is a method, and its self cannot travel"):

        class Mailer:
            @app.task
            def send(self, to: str) -> None: ...

    class Post:
        @staticmethod
        @app.task
        def send(to: str) -> None: ...

    assert list(Post.send.signature.hints) == ["to"]


def test_a_context_without_its_hint_is_explained() -> None:
    app = App()

    @app.task(queue="mail")
    def total(ctx) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 (what is forgotten)
        pass

    with pytest.raises(InvalidRequest, match=r"args\.ctx must be given.*write ctx: Context"):
        total.s()
