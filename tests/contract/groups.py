"""What tests of group leases begin with."""

from typing import Any

from headrace.domain import plan
from headrace.domain.change import Change, Entry
from headrace.domain.lease import LeaseGroup
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


def delivery(world: World, queue: str, task_id: str, group: LeaseGroup, token: str) -> Change:
    """The writes of a dequeue under *group* that is under way."""
    task = world.see(task_id)
    entry = Entry(task.id, task.place, task.due_at, task.expires_at)
    return plan.dequeue(
        entry,
        world.use.queues.get(queue),
        lease_id=group.new_lease(token),
        now=world.clock(),
        worker="ada:1",
        keepalive=None,
        group=group,
    )
