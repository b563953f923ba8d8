"""`headrace dequeue`: tasks for a worker that is a script."""

from collections.abc import Sequence
from typing import Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import CliCommand, queue_names
from headrace.cli.output import line, rows
from headrace.cli.session import CliSession
from headrace.client.calls.work import Order
from headrace.client.models import LeasedTask
from headrace.domain import limits

_TIME: Final[dict[str, Any]] = {"type": params.seconds, "metavar": "TIME"}


@click.command(
    "dequeue",
    cls=CliCommand,
    example="headrace dequeue mail --wait 20s --worker nightly\n"
    "headrace dequeue mail --count 25 --json | jq -r .lease.id\n"
    "headrace dequeue urgent mail news --count 25 --order due",
)
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...", shell_complete=queue_names)
@click.option(
    "--order",
    type=click.Choice(["preference", "due"]),
    default="preference",
    help="Of several queues: a later one for what those before do not have (preference), or "
    "what fell due first of all (due).",
)
@click.option(
    "--count",
    type=click.IntRange(1, limits.BATCH),
    default=1,
    metavar="N",
    help="No more than that; 1.",
)
@click.option(
    "--wait",
    **_TIME,
    default=0,
    help=f"For the first, up to {limits.WAIT_SECONDS}s; else it answers at once.",
)
@click.option("--worker", metavar="NAME", help="How operators see it.")
@click.option("--keepalive", **_TIME, help="How long the leases last.")
@click.option(
    "--lease", metavar="LEASE", help="A group lease to take them under; else each has its own."
)
@click.pass_obj
def dequeue_command(
    session: CliSession,
    /,
    queues: tuple[str, ...],
    *,
    order: Order,
    count: int,
    wait: float,
    worker: str | None,
    keepalive: float | None,
    lease: str | None,
) -> None:
    """Take due tasks from queues, each under a lease.

    With --json one a line, with its lease; `headrace report` wants that.  A task that nobody
    reports on until its lease ends has failed an attempt.
    """
    if wait >= session.timeout:
        raise click.UsageError("--wait must be shorter than --timeout, or no answer is heard")
    several = len(queues) > 1
    found = session.client.dequeue(
        queue=None if several else queues[0],
        queues=queues if several else None,
        order=order if several else None,
        batch_size=count,
        wait_seconds=wait,
        worker=worker,
        keepalive_timeout_in_seconds=keepalive,
        lease_id=lease,
    )
    if session.json:
        for task in found.tasks:
            line(task)
    elif found.tasks:
        _table(found.tasks, several=several)
    if not found.tasks:
        session.note("Nothing to take: no task is due, or the queue is paused or at a limit.")


def _table(tasks: Sequence[LeasedTask], *, several: bool) -> None:
    rows(
        (*(("Queue",) if several else ()), "Task", "Attempt", "Lease", "Until", "Payload"),
        (
            (
                *((task.queue,) if several else ()),
                task.id,
                f"{task.attempts} of {task.max_retries + 1}",
                task.lease.id,
                task.lease.expires_at,
                bytes(task.payload_json).decode(),
            )
            for task in tasks
        ),
    )
