"""The language of lists: what its terms mean, how it is written, and where a mistake is."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.list_query import (
    ListKey,
    ListLanguage,
    at_or_after,
    contains,
    is_before,
)
from headrace.domain.query_grammar import one_of, since, text_of, yes_or_no

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Ship:
    name: str
    ports: tuple[str, ...] = ()
    kind: str = "sail"
    laden: bool = False


SHIPS: ListLanguage[Ship] = ListLanguage(
    {
        "name": ListKey(text_of(64), lambda one, _: [one.name], contains),
        "port": ListKey(text_of(64), lambda one, _: one.ports),
        "kind": ListKey(one_of("sail", "steam"), lambda one, _: [one.kind]),
        "laden": ListKey(yes_or_no, lambda one, _: [one.laden]),
        "after": ListKey(since, lambda _, now: [now], at_or_after),
        "before": ListKey(since, lambda _, now: [now], is_before),
    },
    lambda one: (one.name, *one.ports),
)
VEGA = Ship("Vega of Göteborg", ("Oslo", "New York"), laden=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vega",
        "GÖTE osl",
        '"vega of"',
        "name:VEGA",
        "port:Oslo",
        'port:"New York" kind:steam,sail',
        "Laden:YES",
        "after:2026-11-21T12:00Z before:2026-11-21T12:01Z",
        "after:1m port:Bergen OR port:Oslo -port:Bergen",
        "-kind:steam NOT mars",
        "name:mars OR vega",
    ],
)
def test_all_terms_must_hold(text: str) -> None:
    assert SHIPS.read(text).matches(VEGA, NOON)


@pytest.mark.parametrize("text", ["-vega", "before:1m", "mars OR -port:Oslo", "vega NOT laden:yes"])
def test_one_term_that_does_not_hold_is_enough(text: str) -> None:
    assert not SHIPS.read(text).matches(VEGA, NOON)
    assert SHIPS.read(SHIPS.read(text).text) == SHIPS.read(text)


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("x prot:Oslo", 3, "prot is no key: use one of name, port, kind, laden, after, before"),
        ("port:a port:b", 8, "port is named twice"),
        ("kind:row", 1, "kind must be one or more of sail, steam"),
        ("port:", 1, "port needs a value"),
        ('a "no end', 3, "a quote does not end"),
        ("after:noon", 1, "after must be a date and time"),
        (f"name:{'x' * 65}", 1, "name must be at most 64 bytes"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, at: int, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        SHIPS.read(text)

    (error,) = refused.value.errors
    assert error.field == "query"
    assert error.message.startswith(f"at character {at}: {says}")
