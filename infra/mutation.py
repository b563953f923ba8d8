"""Change conditions of the product one by one, and list the changes that no test notices.

    make coverage && make mutation ARGS="domain/lifecycle.py --most 200 --seed 7"

A mutant is one comparison, `and`, `or`, `not` or border (a number in a comparison) that is changed.
The tests that run its line, by the data of the last `make coverage`, run on it: the most specific
ones first, then others up to a limit, then the simulation.  A test that fails kills the mutant.
Without arguments, this takes a sample of the lifecycle, the plans and the stores.

Every file is compiled once, with all its mutants, each of which a number switches on.  So the
product and the tests are imported once, and each mutant is a fork.  Conditions that run during the
import are left out.
"""

import argparse
import ast
import builtins
import copy
import functools
import gc
import importlib
import io
import os
import random
import resource
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Final

import pytest

from infra import PROJECT_ROOT

DATA: Final = PROJECT_ROOT / "build" / "coverage"
PRODUCT: Final = PROJECT_ROOT / "functions" / "headrace"
TARGETS: Final = (
    *(f"domain/{name}.py" for name in ("lifecycle", "plan", "settle", "operate")),
    "store/**/[!_]*.py",
)
FIRST, LIMIT = 20, 300  # tests: the most specific ones, and all but the simulation
SIMULATION: Final = "tests/simulation/test_simulation.py"
SECONDS: Final = 120  # of CPU; a mutant that runs longer hangs, and is killed
ACTIVE: Final = "__active_mutant__"
SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed condition; *number* switches it on."""

    number: int
    path: Path
    line: int
    change: str


def variants(node: ast.AST) -> Iterator[ast.expr]:
    """Return *node* changed in each possible way."""
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                swapped = [*ops[:index], SWAPS[type(op)](), *ops[index + 1 :]]
                yield ast.Compare(node.left, swapped, node.comparators)  # type: ignore[arg-type]
            for index, part in enumerate((node.left, *node.comparators)):
                if isinstance(part, ast.Constant) and type(part.value) is int:
                    parts = [node.left, *node.comparators]
                    parts[index] = ast.Constant(part.value + 1)
                    yield ast.Compare(parts[0], ops, parts[1:])
        case ast.BoolOp(op=op):
            yield ast.BoolOp(SWAPS[type(op)](), node.values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand


class Switches(ast.NodeTransformer):
    """Let the active mutant replace each condition inside of functions."""

    def __init__(self, path: Path, found: list[Mutant]) -> None:
        self._path, self._found, self._depth = path, found, 0

    def visit(self, node: ast.AST) -> ast.AST:
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        changed = copy.deepcopy(list(variants(node))) if self._depth else []
        self._depth += function
        self.generic_visit(node)
        self._depth -= function
        return self._switched(node, changed) if isinstance(node, ast.expr) else node

    def _switched(self, node: ast.expr, changed: Sequence[ast.expr]) -> ast.expr:
        for variant in changed:
            number = len(self._found) + 1
            self._found.append(Mutant(number, self._path, node.lineno, ast.unparse(variant)))
            test = ast.Compare(ast.Name(ACTIVE, ast.Load()), [ast.Eq()], [ast.Constant(number)])
            node = ast.copy_location(ast.IfExp(test, variant, node), node)
        return node


class Loader(SourceFileLoader):
    """Import modules with their switches."""

    def __init__(self, code: dict[str, CodeType], name: str = "", path: str = "") -> None:
        super().__init__(name, path)
        self._code = code

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if (code := self._code.get(fullname)) is None:
            return None
        loader = Loader(self._code, fullname, code.co_filename)
        return spec_from_file_location(fullname, code.co_filename, loader=loader)

    def get_code(self, fullname: str) -> CodeType:
        return self._code[fullname]


def install(paths: Sequence[Path]) -> list[Mutant]:
    """Import *paths* with switches, before pytest does so without, and return the mutants."""
    found: list[Mutant] = []
    code = {}
    for path in paths:
        tree = ast.parse(path.read_text())
        Switches(path, found).visit(tree)
        name = ".".join(path.relative_to(PRODUCT.parent).with_suffix("").parts)
        code[name] = compile(ast.fix_missing_locations(tree), str(path), "exec")
    vars(builtins)[ACTIVE] = 0
    sys.meta_path.insert(0, Loader(code))
    for name in code:
        importlib.import_module(name)
    return found


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
        """Return the tests that run the line; the most specific first, the simulation last."""
        found = self._lines.get((str(mutant.path), mutant.line), set())
        small = sorted(found, key=self._size.__getitem__)
        simulated = [test for test in small if test.startswith(SIMULATION)]
        return [test for test in small if test not in simulated][:LIMIT] + simulated


def passes(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Run *tests* in a child process, on the mutant if there is one; return whether all pass."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        if mutant:
            vars(builtins)[ACTIVE] = mutant.number
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        for cached in gc.get_objects():
            if isinstance(cached, functools._lru_cache_wrapper):  # noqa: SLF001
                cached.cache_clear()
        os._exit(pytest.main([*OPTIONS, "-x", *tests]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


OPTIONS: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-W", "ignore")


def is_survivor(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Run the specific *tests*, then the others."""
    parts = [part for part in (tests[:FIRST], tests[FIRST:]) if part]
    return all(passes(mutant, part) for part in parts)


def main() -> int:
    """Print the survivors; return 2 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(prog="python -m infra.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="below functions/headrace")
    parser.add_argument("--most", type=int, default=500, help="size of the sample")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    options = parser.parse_args()
    every = install(
        sorted(one for files in options.files or TARGETS for one in PRODUCT.glob(files))
    )
    chosen = random.Random(options.seed).sample(every, min(options.most, len(every)))  # noqa: S311
    print(f"{len(chosen)} of {len(every)} mutants, --seed {options.seed}", flush=True)
    known = Tests(DATA)
    tests = {mutant: known.of(mutant) for mutant in sorted(chosen, key=lambda one: one.number)}
    files = {test.partition("::")[0] for some in tests.values() for test in some}
    with redirect_stdout(io.StringIO()):  # a list of all tests
        pytest.main([*OPTIONS, "--collect-only", *sorted(files)])
    if not passes(None, sorted({test for some in tests.values() for test in some[:1]})):
        print("the tests fail without a mutant, or were renamed since make coverage")
        return 2
    survivors = 0
    for mutant, some in tests.items():
        if is_survivor(mutant, some):
            survivors += 1
            place = f"{mutant.path.relative_to(PRODUCT)}:{mutant.line}"
            print(f"survived: {place}: {mutant.change}  ({len(some)} tests)", flush=True)
    print(f"{survivors} of {len(chosen)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
