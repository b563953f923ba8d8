"""Groups get their turns whatever happens, and faults that are planted are caught.

Each fault has a story of a few steps, which the right code passes.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.property.fair_store import (
    BACKWARDS,
    BY_DUE,
    DOUBLE,
    FORGETFUL,
    GREEDY,
    SAVED,
    WEIGHTLESS,
)
from tests.property.fairness import Fairness
from tests.property.walks import walk_far

MEMORY = settings(
    max_examples=4,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_whatever_happens_groups_get_their_turns() -> None:
    run_machine(Fairness, settings=MEMORY)


@pytest.mark.slow
def test_groups_get_their_turns_for_very_many_steps() -> None:
    walk_far(Fairness)


# ---------------------------------------------------------------------- faults that must be found


def comes(machine: Fairness, key: str | None, count: int, *, delay: int = 0, by: int = 0) -> None:
    machine.enqueue(key, count, delay, by, dies=False, repeats=False, haste=False)
    looked_at(machine)


def takes(machine: Fairness, times: int, *, by: int = 0) -> None:
    for _ in range(times):
        machine.take(machine.largest, by, None, haste=False)
        looked_at(machine)


def looked_at(machine: Fairness) -> None:
    machine.every_task_is_in_its_lane()
    machine.turns_of_a_group_rise()


def one_was_idle_for_long(machine: Fairness) -> None:
    """A group that comes back when another is in the middle of its line is not before all of it."""
    comes(machine, "quiet", 1)
    comes(machine, "noisy", 12)
    takes(machine, 2)
    comes(machine, "quiet", 12, by=1)
    takes(machine, 4, by=1)


def one_adds_to_its_line(machine: Fairness) -> None:
    comes(machine, "noisy", 12)
    takes(machine, 1)
    comes(machine, "noisy", 2)


def one_comes_right_after_many(machine: Fairness) -> None:
    comes(machine, "noisy", 12)
    comes(machine, "quiet", 2)
    takes(machine, 4)


def one_has_waited_before_the_turns(machine: Fairness) -> None:
    """What is due at a time comes to workers beside more tasks with turns than they can take."""
    comes(machine, "noisy", 1, delay=3)
    for key in ("noisy", "quiet", "heavy"):
        comes(machine, key, 12)
    machine.pass_time(5)
    takes(machine, 7)


def a_light_one_adds_to_its_line(machine: Fairness) -> None:
    comes(machine, "light", 12)
    comes(machine, "noisy", 12)
    comes(machine, "light", 12)
    takes(machine, 6)


def one_fails(machine: Fairness) -> None:
    comes(machine, "quiet", 1)
    takes(machine, 1)
    machine.say_of(next(iter(machine.leased)), "FAILED")
    looked_at(machine)


STORIES = [
    (SAVED, one_was_idle_for_long, "overtaken"),
    (BACKWARDS, one_adds_to_its_line, "turns fall back"),
    (BY_DUE, one_comes_right_after_many, "overtaken"),
    (GREEDY, one_has_waited_before_the_turns, "a lane starves|due, and left"),
    (WEIGHTLESS, a_light_one_adds_to_its_line, "overtaken|not in order|turns fall back"),
    (FORGETFUL, one_was_idle_for_long, "overtaken"),
    (DOUBLE, one_fails, "lane lost"),
]


@pytest.mark.parametrize(("fault", "story", "found"), STORIES)
def test_a_planted_fault_in_turns_is_found(
    fault: str, story: Callable[[Fairness], None], found: str
) -> None:
    right = Fairness()
    story(right)
    right.teardown()

    wrong = type("Planted", (Fairness,), {"fault": fault})()
    with pytest.raises(AssertionError, match=found):
        story(wrong)
