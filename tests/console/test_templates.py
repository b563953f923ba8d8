"""Every template draws every page, whichever of its fields are empty.

The pages are built from their types: a new page, or a new field, is tested without being named.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import pytest

import console.app  # noqa: F401 (its views define the pages)
from console.chalicelib.pages import Flash, Frame, Page, PageCost, Who
from console.chalicelib.parts import Link
from console.chalicelib.render import render
from console.chalicelib.views.audit import AuditPage
from headrace.domain.task import Status
from tests.console.conftest import read_html

AT: Final = datetime(2026, 11, 21, 8, tzinfo=UTC)
DEEP: Final = 9  # of pages within pages, as of a tree
SIMPLE: Final[Mapping[object, object]] = {
    str: "text", int: 2, float: 1.5, bool: True, datetime: AT, object: "any", Any: "any",
}  # fmt: skip
EMPTY: Final[Mapping[object, object]] = {str: "", int: 0, float: 0.0, bool: False}
Field = tuple[type, str]


def subclasses(of: type[Page]) -> Iterator[type[Page]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


# By name, because a class with slots is made twice, and the second one is used.
PAGES: Final = {
    f"{each.__module__}.{each.__name__}": each
    for each in subclasses(Page)
    if hasattr(each, "template") and each.__module__.startswith("console.")
}
KNOWN: Final[Mapping[str, object]] = {
    "Strip.kinds": ("wait",),
    # Of each state, whether it is empty or not.
    **{f"{kind}.counts": dict.fromkeys(Status, 2) for kind in ("QueueRow", "Glance")},
}
NEVER_EMPTY: Final = {"Trouble.reasons"}  # a queue without a reason is in no trouble


class Builder:
    """Builds a value of any type; *empty* are the fields that have nothing in them."""

    def __init__(self, empty: frozenset[Field] | None = frozenset()) -> None:
        self.empty = empty  # None: all that can be
        self.met: dict[Field, None] = {}

    def of(self, kind: Any, *, empty: bool = False, deep: int = 0) -> Any:
        origin, given = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            some = [one for one in given if one is not type(None)]
            return None if empty and some != [*given] else self.of(some[0], deep=deep)
        if origin is tuple and given[1:] != (...,):
            return tuple(self.of(one, deep=deep) for one in given)
        if origin in (tuple, Sequence):
            kinds = typing.get_args(given[0]) or given[:1]  # one of each
            return () if empty or deep > DEEP else tuple(self.of(one, deep=deep) for one in kinds)
        if origin is Mapping:
            return {} if empty else self._mapping(given[0], given[1], deep)
        return self._simple(kind, deep, empty=empty)

    def _mapping(self, name: Any, value: Any, deep: int) -> Any:
        names = name if isinstance(name, type) and issubclass(name, Enum) else [self.of(name)]
        return {one: self.of(value, deep=deep) for one in names}

    def _simple(self, kind: Any, deep: int, *, empty: bool) -> Any:
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self.dataclass(kind, deep + 1)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return next(iter(kind))
        return EMPTY.get(kind, SIMPLE[kind]) if empty else SIMPLE[kind]

    def dataclass(self, kind: type, deep: int) -> Any:
        hints = typing.get_type_hints(kind)
        values = {}
        for one in dataclasses.fields(kind):
            if one.init:
                self.met[kind, one.name] = None
                may = f"{kind.__name__}.{one.name}" not in NEVER_EMPTY
                empty = may and (self.empty is None or (kind, one.name) in self.empty)
                known = KNOWN.get(f"{kind.__name__}.{one.name}")
                values[one.name] = known or self.of(hints[one.name], empty=empty, deep=deep)
        return kind(**values)


def frame(*, bare: bool) -> Frame:
    if bare:
        return Frame(AT, "", "/", "s.css", "s.js", "i.svg")
    return Frame(
        AT, "local", "/console", "s.css", "s.js", "i.svg", "k.js", "token",
        Who("ada", "admin", "all queues", "/out"), (Link("Queues", "/console", current=True),),
        "/search", "mail", Flash("done", "Done.", "und_1"), "/undo", "/here", "/back",
        PageCost(1, 2, 3), "request",
    )  # fmt: skip


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.__name__)
def test_a_page_is_drawn_whichever_of_its_fields_are_empty(page: type[Page]) -> None:
    full = Builder()
    read_html(render(full.of(page), frame(bare=False)))
    read_html(render(Builder(empty=None).of(page), frame(bare=True)))

    for one in full.met:
        name = f"{one[0].__name__}.{one[1]}"
        try:
            render(Builder(frozenset({one})).of(page), frame(bare=False))
        except Exception as error:
            error.add_note(f"where {name} is empty")
            raise


def test_each_field_within_a_page_is_emptied_once() -> None:
    built = Builder()
    built.of(AuditPage)

    assert {("AuditPage", "rows"), ("AuditRecord", "matched"), ("AuditRecord", "changed")} <= {
        (kind.__name__, name) for kind, name in built.met
    }
