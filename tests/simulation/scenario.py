"""What happens in a run: queues, faults, and what each actor does; all of it drawn from a seed."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.faults import FaultRates

Settings = Mapping[str, Any]
BASE: Settings = {
    "keepalive_timeout_in_seconds": 10,
    "expires_in_seconds": 0,
    "retry_strategy": {"kind": "fixed", "max_retries": 2, "base_seconds": 2, "jitter": 0},
    "history_retention_in_seconds": 604_800,
    "dead_letter_queue_config": {"enable": True, "retention_period_in_seconds": 604_800},
}
ENDS = "ends"
"""The queue that is notified of ended tasks."""

KINDS: Mapping[str, Settings] = {
    "plain": {},
    "sharded": {"shards": 3},
    "priority": {"priority": {"aging_in_seconds": 60}},
    "fair": {"groups": {"mode": "fair", "weights": {"b": 2}}},
    "fair limited": {"groups": {"mode": "fair", "max_inflight_per_group": 1}},
    "strict": {"groups": {"mode": "strict"}},
    "strict halt": {"groups": {"mode": "strict", "on_dead": "halt"}},
    "limited": {"dequeuing_settings": {"max_inflight_tasks": 2}},
    "rate": {
        "dequeuing_settings": {
            "rate_limiting": {"max_tokens": 3, "interval": 1, "interval_unit": "SECONDS"}
        }
    },
    "forgetful": {
        "history_retention_in_seconds": 0,
        "dead_letter_queue_config": {"enable": False, "retention_period_in_seconds": 0},
    },
    "expiring": {"expires_in_seconds": 25},
    "evicting": {
        "dead_letter_queue_config": {
            "enable": True,
            "retention_period_in_seconds": 604_800,
            "max_size": 2,
        },
        "retry_strategy": {"kind": "fixed", "max_retries": 0, "base_seconds": 0},
    },
    "telling": {"on_end": {"queue": ENDS, "states": ["SUCCEEDED", "DEAD"]}},
    "push": {"target": {"url": "https://hook.example.com/in", "max_concurrency": 3}},
}
OTHER_SETTINGS: Mapping[str, Settings] = {
    "priority": {"priority": None},
    "sharded": {"shards": 1},
    "limited": {"dequeuing_settings": {"max_inflight_tasks": 1}},
    "rate": {
        "dequeuing_settings": {
            "rate_limiting": {"max_tokens": 2, "interval": 1, "interval_unit": "SECONDS"}
        }
    },
}
"""What an operator sets for a while."""

PRODUCER = {
    "enqueue": 4,
    "enqueue_own": 2,
    "flood": 1,
    "delayed": 1,
    "dedupe": 2,
    "unique": 1,
    "batch": 2,
    "schedule": 2,
    "unschedule": 1,
    "run_schedule": 1,
}
WORKER = {"work": 7, "work_many": 1, "work_group": 1, "dawdle": 1}
OPERATOR = {
    "restart": 2,
    "delete": 2,
    "undo": 2,
    "move": 1,
    "run_now": 1,
    "cancel": 1,
    "purge": 1,
    "pause": 1,
    "settings": 1,
    "action": 2,
    "recount": 1,
    "look": 2,
    "recount_batch": 1,
    "delete_queue": 1,
    "delete_task": 1,
}
"""What actors do, and how often compared with the others."""


@dataclass(frozen=True)
class Op:
    """One thing that an actor does, *pause* seconds after the one before; *draw* is its seed."""

    name: str
    draw: int
    pause: float


@dataclass(frozen=True)
class Actor:
    """Somebody who calls the service."""

    name: str
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Scenario:
    """A whole run."""

    seed: int
    queues: Mapping[str, Settings]
    actors: tuple[Actor, ...]
    rates: FaultRates

    @property
    def size(self) -> int:
        """The number of things that actors do."""
        return sum(len(actor.ops) for actor in self.actors)

    def kind(self, queue: str) -> str:
        """Return the kind of a queue, which is its name without the number."""
        return queue.split(".", maxsplit=1)[0].replace("-", " ")

    def without_op(self, actor: int, op: int) -> "Scenario":
        """Return the scenario without one thing that an actor does."""
        changed = list(self.actors)
        ops = self.actors[actor].ops
        changed[actor] = replace(self.actors[actor], ops=(*ops[:op], *ops[op + 1 :]))
        return replace(self, actors=tuple(changed))


def scenario(seed: int) -> Scenario:
    """Draw a scenario."""
    chance = random.Random(f"{seed} scenario")
    names = chance.sample(sorted(KINDS), chance.choice((1, 2, 2, 3)))
    queues = {
        f"{name.replace(' ', '-')}.{n}": {**BASE, **KINDS[name]} for n, name in enumerate(names)
    }
    queues[ENDS] = dict(BASE)
    some = chance.randint(1, 2)
    actors = [
        *(
            _actor(chance, f"producer-{n}", PRODUCER, chance.randint(3, 7), 2.0)
            for n in range(some)
        ),
        *(
            _actor(chance, f"worker-{n}", WORKER, chance.randint(4, 10), 1.5)
            for n in range(chance.randint(1, 3))
        ),
        _actor(chance, "operator", OPERATOR, chance.choice((0, 3, 6, 9)), 4.0),
    ]
    return Scenario(seed, queues, tuple(actors), _rates(chance))


def _actor(
    chance: random.Random, name: str, ops: Mapping[str, int], number: int, pause: float
) -> Actor:
    return Actor(
        name,
        tuple(
            Op(name, chance.getrandbits(32), chance.expovariate(1 / pause))
            for name in chance.choices(list(ops), list(ops.values()), k=number)
        ),
    )


def _rates(chance: random.Random) -> FaultRates:
    """Most runs have some kinds of faults; a fifth have none, so that races show by themselves."""
    if chance.random() < 0.2:
        return FaultRates()
    rates = {
        "away": 0.02,
        "lost": 0.03,
        "dies_before": 0.02,
        "dies_after": 0.03,
        "stalls": 0.01,
        "stale": 0.25,
        "timeouts": 0.05,
    }
    return FaultRates(**{k: rate * chance.choice((0, 0.5, 1, 2)) for k, rate in rates.items()})
