"""The simulation finds what is planted in the product: so it is a test that can fail."""

import os

import pytest

from tests.simulation import test_early_leases, test_not_simulated
from tests.simulation.planted import FAULTS, Fault, planted
from tests.simulation.run import run
from tests.simulation.scenario import scenario

SEEDS = int(os.environ.get("HEADRACE_PLANTED_SEEDS", "2000"))
TOLD = {name for name, _ in (*test_not_simulated.STORIES, *test_early_leases.STORIES)}
SIMULATED = [fault for name, fault in FAULTS.items() if name not in TOLD]


@pytest.mark.slow
@pytest.mark.parametrize("fault", SIMULATED, ids=lambda fault: fault.name)
def test_the_simulation_finds_a_planted_fault(fault: Fault) -> None:
    for seed in range(1, SEEDS + 1):
        played = scenario(seed)
        if fault.kinds.isdisjoint(map(played.kind, played.queues)) and fault.kinds:
            continue  # it cannot show without these queues
        with planted(fault.name):
            if run(played).failures:
                return
    pytest.fail(f"{SEEDS} seeds do not find it")
