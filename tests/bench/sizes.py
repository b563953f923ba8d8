"""How much is measured: the full run, and a quick one that only shows that everything works."""

from dataclasses import dataclass
from typing import Final

BATCH: Final = 25
"""Tasks in one call: the most the API takes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one run does; all numbers are counts."""

    depths: tuple[int, ...]
    """Waiting tasks at which the calls are measured, from few to many."""

    call_rounds: int
    """Calls of each kind, at each depth, on each path."""

    life_tasks: int
    """Tasks whose whole life one service, and one bare engine, is measured with."""

    life_turns: int
    """Turns that the two take for that, each with its part of the tasks."""

    life_rounds: int
    """New services and engines; fewer on a very slow disk."""

    few_changes: int
    many_changes: int
    """Changes after which the put rates are compared."""

    put_windows: int
    """Windows of the put rate, each of two batches."""


FULL: Final = Sizes(
    depths=(1_000, 10_000, 100_000),
    call_rounds=200,
    life_tasks=10_000,
    life_turns=5,
    life_rounds=2,
    few_changes=1_000,
    many_changes=50_000,
    put_windows=60,
)
QUICK: Final = Sizes(
    depths=(500, 2_000, 8_000),
    call_rounds=20,
    life_tasks=1_000,
    life_turns=2,
    life_rounds=1,
    few_changes=500,
    many_changes=5_000,
    put_windows=30,
)
