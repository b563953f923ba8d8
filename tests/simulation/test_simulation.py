"""Seeds of the simulation; one that fails prints the story of its smallest scenario."""

import os
import random
from pathlib import Path

import pytest

from tests.simulation.run import Result, run
from tests.simulation.shrink import smallest

SEEDS = 200
PART = 10
KNOWN = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def told(result: Result) -> str:
    """Return who did what, and what was found."""
    small = smallest(result)
    return "\n".join(
        [
            f"python -m tests.simulation --seed {result.scenario.seed}",
            *small.story,
            *small.failures,
        ]
    )


def holds(seed: int) -> None:
    result = run(seed)
    if result.failures:
        pytest.fail(told(result), pytrace=False)


@pytest.mark.parametrize("first", range(1, SEEDS, PART))
def test_all_promises_hold_whatever_happens(first: int) -> None:
    for seed in range(first, first + PART):
        holds(seed)


def test_what_has_failed_once_holds() -> None:
    for seed in KNOWN:
        holds(seed)


@pytest.mark.slow
def test_random_seeds_hold() -> None:
    """As many as HEADRACE_SEEDS says; a failure names its seed."""
    first = random.SystemRandom().randrange(10**9)
    for seed in range(first, first + int(os.environ.get("HEADRACE_SEEDS", "500"))):
        holds(seed)


def test_a_seed_gives_the_same_run_again() -> None:
    assert run(3).story == run(3).story
