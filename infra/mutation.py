"""Change conditions of the product one by one, and list the changes that no test notices.

    make coverage && make mutation ARGS="domain/lifecycle.py --most 200 --seed 7"

A mutant is one comparison, `and`, `or`, `not` or border (a number in a comparison) that is changed.
It is tested by those tests that run its line, as the last `make coverage` noted: the most specific
ones first, and all others, up to a limit, if those pass.  A test that fails or hangs kills it.
Without arguments it takes a sample of the lifecycle, the plans and the stores; the seed is printed.
Tests run in a child of this process, which has imported libraries but nothing of the product.
"""

import argparse
import ast
import copy
import importlib
import importlib.util
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

import boto3  # noqa: F401  imported once, for all children
import pydantic  # noqa: F401
import pytest

from infra import PROJECT_ROOT
from infra.idle_tests import DATA

PRODUCT: Final = PROJECT_ROOT / "functions" / "headrace"
TARGETS: Final = (
    *(f"domain/{name}.py" for name in ("lifecycle", "plan", "settle", "operate")),
    "store/**/[!_]*.py",
)
FIRST, LIMIT = 20, 300  # tests: the most specific ones, and all
SECONDS: Final = 180  # a mutant that runs longer hangs, and is killed
SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """The *number*-th possible change of a file, at a line of it."""

    path: Path
    number: int
    line: int
    change: str


def changes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Change *tree* in place in each possible way, one after the other; yield line and change."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=ops):
                for index, op in enumerate(ops):
                    ops[index] = SWAPS[type(op)]()  # type: ignore[call-overload]
                    yield node.lineno, ast.unparse(node)
                    ops[index] = op
                for constant in (node.left, *node.comparators):
                    if isinstance(constant, ast.Constant) and type(constant.value) is int:
                        constant.value += 1
                        yield node.lineno, ast.unparse(node)
                        constant.value -= 1
            case ast.BoolOp(op=op):
                node.op = SWAPS[type(op)]()  # type: ignore[assignment]
                yield node.lineno, ast.unparse(node)
                node.op = op
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                node.operand = ast.UnaryOp(ast.Not(), operand, lineno=node.lineno, col_offset=0)
                yield node.lineno, f"without not: {ast.unparse(operand)}"
                node.operand = operand


def mutants(path: Path) -> list[Mutant]:
    """Return every mutant of a file."""
    tree = ast.parse(path.read_text())
    found = enumerate(changes(tree))
    every = [Mutant(path, number, line, change) for number, (line, change) in found]
    return [mutant for mutant in every if "__name__" not in mutant.change]  # of programs


def mutated(mutant: Mutant) -> ast.Module:
    """Return the tree of the changed file."""
    tree = ast.parse(mutant.path.read_text())
    for number, _ in enumerate(changes(tree)):
        if number == mutant.number:
            return ast.fix_missing_locations(copy.deepcopy(tree))
    raise ValueError(mutant)


class Loader(SourceFileLoader):
    """Import the changed module in place of the file."""

    def __init__(self, mutant: Mutant) -> None:
        name = ".".join(mutant.path.relative_to(PRODUCT.parent).with_suffix("").parts)
        super().__init__(name, str(mutant.path))
        self._mutant = mutant

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  the protocol's
        return compile(mutated(self._mutant), self.path, "exec")


def load(mutant: Mutant) -> None:
    """Import the changed module, before pytest does so by a loader of its own."""
    loader = Loader(mutant)
    sys.meta_path.insert(0, loader)
    importlib.import_module(loader.name)


class Tests:
    """Which tests run which lines, by the data of `make coverage`."""

    def __init__(self, data: Path) -> None:
        self._lines: dict[tuple[str, int], set[str]] = {}
        self._size: Counter[str] = Counter()
        query = """SELECT file.path, arc.fromno, arc.tono, context.context FROM arc
            JOIN file ON file.id = arc.file_id JOIN context ON context.id = arc.context_id
            WHERE context.context != ''"""
        with sqlite3.connect(data) as connection:
            for path, start, end, context in connection.execute(query):
                test = context.partition("|")[0]
                self._size[test] += 1
                for line in (start, end):
                    self._lines.setdefault((path, line), set()).add(test)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line; the most specific first."""
        path = str(mutant.path)
        found = self._lines.get((path, mutant.line), set())
        if not found:  # run at the import: tests of the module
            found = set().union(*(t for (file, _), t in self._lines.items() if file == path))
        return sorted(found, key=self._size.__getitem__)


def passes(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Run *tests* in a child process, on the mutant if there is one; return whether all pass."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        if mutant:
            signal.alarm(SECONDS)
            load(mutant)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # it is imported already
        os._exit(pytest.main([*options, *tests]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_survivor(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Run the specific *tests*, then the others."""
    first, rest = tests[:FIRST], tests[FIRST:LIMIT]
    return not tests or (passes(mutant, first) and (not rest or passes(mutant, rest)))


def main() -> int:
    """Print the survivors; return 2 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(prog="python -m infra.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="below functions/headrace")
    parser.add_argument("--most", type=int, default=500, help="size of the sample")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    options = parser.parse_args()
    paths = [path for files in options.files or TARGETS for path in PRODUCT.glob(files)]
    every = [mutant for path in sorted(paths) for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(every, min(options.most, len(every)))  # noqa: S311
    print(f"{len(chosen)} of {len(every)} mutants, --seed {options.seed}", flush=True)
    known = Tests(DATA)
    os.environ["PYTHONPATH"] = f"{PRODUCT.parent}{os.pathsep}{PROJECT_ROOT}"
    if not passes(None, sorted({test for one in chosen for test in known.of(one)[:1]})):
        print("the tests fail without a mutant, or were renamed since make coverage")
        return 2
    survivors = 0
    for mutant in sorted(chosen, key=lambda one: (one.path, one.line)):
        tests = known.of(mutant)
        if is_survivor(mutant, tests):
            survivors += 1
            place = f"{mutant.path.relative_to(PRODUCT)}:{mutant.line}"
            print(f"survived: {place}: {mutant.change}  ({len(tests)} tests)", flush=True)
    print(f"{survivors} of {len(chosen)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
