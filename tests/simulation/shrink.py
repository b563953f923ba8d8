"""Make a scenario that fails smaller, as long as it fails in the same way."""

from dataclasses import replace

from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario

MOST_RUNS = 300


def smallest(result: Result) -> Result:
    """Return the result of the smallest scenario found that fails the same check."""
    wanted, left = _kinds(result), MOST_RUNS
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(result.scenario):
            left -= 1
            if left <= 0:
                break
            tried = run(smaller)
            if _kinds(tried) & wanted:
                result, progress = tried, True
                break
    return result


def _kinds(result: Result) -> set[str]:
    return {failure.partition(":")[0] for failure in result.failures}


def _smaller(played: Scenario) -> list[Scenario]:
    """Return the scenario without a kind of fault, an actor, half of its ops, or one of them."""
    tries = [replace(played, rates=played.rates.without(name)) for name in played.rates.names]
    for number, actor in enumerate(played.actors):
        half = len(actor.ops) // 2
        for ops in ((), actor.ops[:half], actor.ops[half:]):
            if len(ops) < len(actor.ops) and half:
                changed = list(played.actors)
                changed[number] = replace(actor, ops=ops)
                tries.append(replace(played, actors=tuple(changed)))
    for number, actor in enumerate(played.actors):
        tries += [played.without_op(number, op) for op in range(len(actor.ops))]
    return tries
