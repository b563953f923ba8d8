"""The harness of every part of the machine: a service, its model, and what workers hold."""

import itertools
import random
from datetime import datetime
from typing import Final

from hypothesis.stateful import RuleBasedStateMachine

from headrace.domain.ids import group_id
from headrace.domain.task import Task
from headrace.runtime.wiring import UseCases
from headrace.store.base import Store
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.calls import Delivery, new_rules
from tests.property.model import SPREAD, Model

_TICK: Final = 0.001  # no two calls of a real clock see the same instant


class ServiceHarness(RuleBasedStateMachine):
    """A service and the model that it is compared with."""

    look_every = 1  # how many calls between looks at the index, which are dear on a real engine
    orders_ties = True  # whether the index has tasks of one time in the order of their ids

    def make_store(self) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.world: World = new_world(self.make_store(), self.clock)
        self._leave_nothing_to_chance(self.world.use)
        self.model = Model(new_rules())
        self.deliveries: list[Delivery] = []
        self.settling: dict[str, tuple[str | None, ...]] = {}  # by task: what its report said
        self.calls = 0

    @staticmethod
    def _leave_nothing_to_chance(use: UseCases) -> None:
        """Make the same calls end the same way, so that a failure can be seen again."""
        numbers = itertools.count()
        use.tasks.new_id = lambda now: f"tsk_{next(numbers):026}"
        use.tasks.new_token = lambda: f"{next(numbers):010}"
        use.deliveries.new_lease = lambda: f"lse_{next(numbers):020}"
        use.leases.new_id = lambda _, now: group_id(now, next(numbers), next(numbers))
        use.deliveries.chance = random.Random(7)
        use.reaping.spread = use.reports.spread = lambda: SPREAD

    def now(self) -> datetime:
        """Let a moment pass and return the time of this call."""
        self.calls += 1
        self.clock.forward(_TICK)
        return self.clock()

    def stored(self) -> dict[str, Task]:
        ids = {*self.model.tasks, *self.model.ended}
        return self.world.store.read(sorted(ids))
