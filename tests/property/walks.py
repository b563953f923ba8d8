"""Long random walks of a state machine, without Hypothesis's engine.

Hypothesis draws the examples of the quick runs, and makes what it finds small.  Its engine notes
each choice, to draw nothing twice and to repeat it smaller: in a run of a hundred thousand steps
that is half of the work, and nothing comes of it as long as nothing is found.  A walk takes the
same rules, preconditions and invariants, and draws by `random.Random` alone.  What fails names the
walk's seed and its steps; ``walk`` takes them again.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

from hypothesis.stateful import Rule, RuleBasedStateMachine
from hypothesis.strategies import SearchStrategy
from hypothesis.strategies._internal.collections import ListStrategy
from hypothesis.strategies._internal.core import DataStrategy
from hypothesis.strategies._internal.lazy import unwrap_strategies
from hypothesis.strategies._internal.misc import BooleansStrategy
from hypothesis.strategies._internal.numbers import IntegersStrategy
from hypothesis.strategies._internal.strategies import OneOfStrategy, SampledFromStrategy

LENGTH: Final = (
    60  # steps of one walk: many short ones find what is planted sooner than few long ones
)
VERY_MANY: Final = int(os.environ.get("HEADRACE_WALK_STEPS", "100000"))

IN_SO_MANY: Final = 1 if VERY_MANY >= 100_000 else 3
"""Where walks are shorter, a long search draws one in so many of its examples."""

Machine: TypeAlias = type[RuleBasedStateMachine]
Draw: TypeAlias = Callable[[random.Random], Any]
Step: TypeAlias = tuple[Rule, dict[str, Any]]


def in_part(examples: int) -> int:
    """Return how many examples a long search of so many draws."""
    return -(-examples // IN_SO_MANY)


def walk_far(
    machine: Machine, steps: int = VERY_MANY, *, seed: str = "1", length: int = LENGTH
) -> None:
    """Take so many steps at least, in as many walks as that takes."""
    for number in range(-(-steps // length)):
        walk(machine, f"{seed}.{number}", length)


def walk(machine: Machine, seed: str, length: int = LENGTH) -> None:
    """Take one walk, the same each time.

    A machine that has failed is left as it is: its teardown would only find more wrong.
    """
    taken: list[Step] = []
    with _drawing_by(seed):
        try:
            _walk(machine, random.Random(seed), length, taken)
        except (Exception, BaseExceptionGroup) as error:  # whatever it is, it is told where
            error.add_note(f'walk({machine.__name__}, "{seed}", {length}):\n{_shown(taken)}')
            raise


@contextmanager
def _drawing_by(seed: str) -> Iterator[None]:
    """Let those who draw by the generator that all share draw the same in each walk of *seed*."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def _shown(taken: list[Step]) -> str:
    return "\n".join(
        f"    {rule.function.__name__}({', '.join(f'{key}={how[key]!r}' for key in how)})"
        for rule, how in taken
    )


def _walk(kind: Machine, chance: random.Random, length: int, taken: list[Step]) -> None:
    machine = kind()
    parts = kind.setup_state()
    for rule in parts.initializers:
        _take(machine, rule, chance, taken)
    usual = _some(parts.rules, chance)
    _check(machine)
    for _ in range(length):
        rules = _possible(machine, usual) or _possible(machine, parts.rules)
        _take(machine, chance.choice(rules), chance, taken)
        _check(machine)
    machine.teardown()


def _some(rules: list[Rule], chance: random.Random) -> list[Rule]:
    """Choose the rules of a walk: what takes many steps of few kinds is rare among all of them."""
    left_out = chance.choice([0.0, chance.random()])
    return [rule for rule in rules if chance.random() >= left_out]


def _possible(machine: RuleBasedStateMachine, rules: list[Rule]) -> list[Rule]:
    return [rule for rule in rules if all(holds(machine) for holds in rule.preconditions)]


def _take(
    machine: RuleBasedStateMachine, rule: Rule, chance: random.Random, taken: list[Step]
) -> None:
    if rule.targets or rule.bundles:
        raise TypeError(f"{rule.function.__name__}: walks know no bundles")
    drawn = {name: _draw(strategy)(chance) for name, strategy in rule.arguments.items()}
    taken.append((rule, drawn))
    rule.function(machine, **drawn)


def _check(machine: RuleBasedStateMachine) -> None:
    for invariant in machine.invariants:
        if all(holds(machine) for holds in invariant.preconditions):
            invariant.function(machine)


class _Data:
    """What ``st.data()`` gives to a rule."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._drawn: list[Any] = []

    def __repr__(self) -> str:
        return f"<draws {self._drawn}>"

    def draw(self, strategy: SearchStrategy[Any]) -> Any:
        self._drawn.append(_draw_of(strategy)(self._chance))
        return self._drawn[-1]


def _draw_of(strategy: SearchStrategy[Any]) -> Draw:
    """Tell how to draw of *strategy*; of the kinds that our rules have."""
    plain: Any = unwrap_strategies(strategy)  # type: ignore[no-untyped-call]  # theirs
    kind = type(plain)
    if issubclass(kind, DataStrategy):
        return _Data
    if issubclass(kind, BooleansStrategy):
        return lambda chance: chance.random() < 0.5
    if issubclass(kind, IntegersStrategy):
        return lambda chance: chance.randint(plain.start, plain.end)
    if issubclass(kind, SampledFromStrategy) and not plain._transformations:  # noqa: SLF001  mapped or filtered
        return lambda chance: chance.choice(plain.elements)
    if issubclass(kind, OneOfStrategy):
        ways = [_draw_of(one) for one in plain.original_strategies]
        return lambda chance: chance.choice(ways)(chance)
    if issubclass(kind, ListStrategy):
        one, sizes = _draw_of(plain.element_strategy), (plain.min_size, plain.max_size)
        return lambda chance: [one(chance) for _ in range(chance.randint(*sizes))]
    raise TypeError(f"walks do not know how to draw of {strategy!r}")


_draw: Final = cache(_draw_of)  # of a rule's arguments, which are there as long as the machine is
