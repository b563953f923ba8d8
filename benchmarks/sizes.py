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

    file_calls: int
    """Calls that enqueue one task in a file on disk."""

    waits: int
    """Tasks whose result is waited for, on each path."""

    life_tasks: int
    """Tasks whose whole life one service is measured with."""

    bare_tasks: int
    """The same for one file and bare SQLite, which is faster."""

    life_turns: int
    """Turns that the two take for that, each with its part of the tasks."""

    life_rounds: int
    """New services and files; fewer on a very slow disk."""


FULL: Final = Sizes(
    depths=(1_000, 10_000, 100_000),
    call_rounds=200,
    file_calls=500,
    waits=200,
    life_tasks=10_000,
    bare_tasks=50_000,
    life_turns=5,
    life_rounds=2,
)
QUICK: Final = Sizes(
    depths=(500, 2_000, 8_000),
    call_rounds=20,
    file_calls=50,
    waits=20,
    life_tasks=1_000,
    bare_tasks=4_000,
    life_turns=2,
    life_rounds=1,
)
