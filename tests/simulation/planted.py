"""Mistakes to plant in the product, to show that the simulation and its short stories find them.

``planted.txt`` has them.  If the text of an edit is no longer found in the product, write the same
mistake against the new code.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import headrace

ROOT: Final = Path(headrace.__file__).parent
TABLE: Final = Path(__file__).with_suffix(".txt")
TITLE: Final = re.compile(r"# (?P<name>[^:]+): (?P<breaks>[^\[]+)(?: \[(?P<kinds>.+)\])?")


@dataclass(frozen=True)
class Fault:
    """A mistake: edits of files, each with the text before and after.

    The simulation needs a queue of one of *kinds* to show it, if there are any.
    """

    name: str
    breaks: str
    kinds: frozenset[str]
    edits: list[tuple[str, str, str]] = field(default_factory=list)


def table() -> Iterator[Fault]:
    """Read the mistakes."""
    for entry in TABLE.read_text(encoding="utf-8").split("\n\n")[1:]:
        title, *lines = entry.strip("\n").split("\n")
        found = TITLE.fullmatch(title)
        assert found, title
        kinds = frozenset((found["kinds"] or "").split(", ")) - {""}
        fault = Fault(found["name"], found["breaks"], kinds)
        for part in re.findall(r"(?:[^-+].*\n)?(?:-.*\n)+(?:\+.*\n)+", "\n".join([*lines, ""])):
            signs = {
                sign: [line[1:] for line in part.splitlines() if line[0] == sign] for sign in "-+"
            }
            file = fault.edits[-1][0] if part[0] == "-" else part.partition("\n")[0]
            fault.edits.append((file, "\n".join(signs["-"]), "\n".join(signs["+"])))
        yield fault


FAULTS: Final = {fault.name: fault for fault in table()}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant the mistake *name* for the length of a block: give functions the edited code."""
    texts: dict[str, str] = {}
    for file, before, after in FAULTS[name].edits:
        text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{file} has {text.count(before)} times: {before}"
        texts[file] = text.replace(before, after)
    right: list[tuple[FunctionType, CodeType]] = []
    for file, text in texts.items():
        module = import_module("headrace." + file.removesuffix(".py").replace("/", "."))
        wrong = {code.co_qualname: code for code in _codes(compile(text, file, "exec"))}
        for function in _functions(module, module.__name__):
            right.append((function, function.__code__))
            function.__code__ = wrong.get(function.__code__.co_qualname, function.__code__)
    try:
        yield
    finally:
        for function, code in right:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _functions(owner: object, module: str) -> Iterator[FunctionType]:
    for one in [*vars(owner).values()]:
        inner = getattr(one, "__wrapped__", None) or getattr(one, "fget", None) or one
        if isinstance(inner, type) and inner.__module__ == module:
            yield from _functions(inner, module)
        elif isinstance(inner, FunctionType) and inner.__module__ == module:
            yield inner
