"""What tests of group leases begin with."""

from typing import Any

from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.ops.delivery.reports import ReportOutcome
from tests.contract.conftest import World

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0)


def opened(world: World, name: str | None = None, keepalive: float = 60) -> str:
    return world.use.leases.open(name, keepalive=keepalive).id


def held(world: World, group: str, queue: str, shard: int = 0) -> list[str]:
    return sorted(task.id for task in world.use.leases.held(group, queue, shard))


def settle(world: World, task: Task, group: str, status: str, **fields: Any) -> ReportOutcome:
    """Report under the id of the group, as a worker does that knows nothing else."""
    return world.say(task, status, lease=group, **fields).outcome
