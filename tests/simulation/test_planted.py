"""The simulation finds what is planted in the product: so it is a test that can fail."""

import os
from pathlib import Path

import pytest

from tests.simulation import test_early_leases, test_not_simulated
from tests.simulation.planted import FAULTS, Fault, planted
from tests.simulation.run import run
from tests.simulation.scenario import scenario

SEEDS = int(os.environ.get("HEADRACE_PLANTED_SEEDS", "2000"))
TOLD = {name for name, _ in test_not_simulated.STORIES}
TOLD |= {name for name, _ in test_early_leases.STORIES}
SIMULATED = [one for one in FAULTS if one.name not in TOLD and not one.test]


def test_each_fault_is_found_once() -> None:
    names = [one.name for one in FAULTS]
    assert len(names) == len({*names})
    assert {*names} >= TOLD
    tests = Path(__file__).parent.parent
    assert not [one.test for one in FAULTS if one.test and not (tests / f"{one.test}.py").exists()]


@pytest.mark.slow
@pytest.mark.parametrize("fault", SIMULATED, ids=lambda fault: fault.name)
def test_the_simulation_finds_a_planted_fault(fault: Fault) -> None:
    for seed in range(1, SEEDS + 1):
        played = scenario(seed)
        if fault.kinds and not {played.kind(queue) for queue in played.queues} & {*fault.kinds}:
            continue  # it cannot show without these queues
        with planted(fault.name):
            if run(played).failures:
                return
    pytest.fail(f"{SEEDS} seeds do not find it")
