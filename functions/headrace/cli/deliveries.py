"""`headrace dequeue` and `headrace report`: for a worker that is a script."""

from collections.abc import Sequence
from typing import Any, Final, get_args

import click

from headrace.cli import params
from headrace.cli.commands import CliCommand, options, queue_argument, queue_names, tag_option
from headrace.cli.output import document, line, rows, when
from headrace.cli.params import TIME
from headrace.cli.session import CliSession, Exit
from headrace.client.calls.work import Order
from headrace.client.sending import Failure, Report, Status
from headrace.domain import limits
from headrace.domain.escaping import escape_unseen
from headrace.domain.task import State
from headrace.wire.tasks import LeasedTask, Reported

LEASE_VARIABLE: Final = "HEADRACE_LEASE"


ONLY_WITH: Final[dict[str, tuple[Status, ...]]] = {
    "result": ("SUCCEEDED",),
    "progress": ("INFLIGHT",),
    "keepalive": ("INFLIGHT",),
    "error": ("FAILED",),
    "error_type": ("FAILED",),
    "not_retryable": ("FAILED",),
    "delay": ("FAILED", "RELEASED", "MOVED"),
    "to": ("MOVED",),
    "payload": ("MOVED",),
    "tags": ("MOVED",),
}
"""Which statuses an option goes with, as the service has it."""

_REFUSED: Final = {
    "NOT_FOUND": Exit.NOT_FOUND,
    "NOT_INFLIGHT": Exit.CONFLICT,
    "STALE_LEASE": Exit.CONFLICT,
    "INVALID": Exit.FAILED,
}

_status_options = options(
    click.option("--result", metavar="JSON", help="With SUCCEEDED: what came of it."),
    click.option("--progress", metavar="JSON", help="With INFLIGHT: how far it is."),
    click.option("--keepalive", **TIME, help="With INFLIGHT: how long the lease lasts from now."),
    click.option("--error", metavar="TEXT", help="With FAILED: what went wrong."),
    click.option("--error-type", metavar="TEXT", help="With FAILED: its kind, as TimeoutError."),
    click.option("--not-retryable", is_flag=True, help="With FAILED: no attempt after this one."),
    click.option(
        "--delay",
        **TIME,
        help="With FAILED, RELEASED, MOVED: not delivered before so long from now.",
    ),
    click.option("--to", metavar="QUEUE", shell_complete=queue_names, help="With MOVED: where to."),
    click.option("--payload", metavar="JSON", help="With MOVED: instead of the one it has."),
    tag_option("With MOVED: instead of those it has."),
)


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
    **TIME,
    default=0,
    help=f"For the first, up to {limits.WAIT_SECONDS}s; else it answers at once.",
)
@click.option("--worker", metavar="NAME", help="How operators see it.")
@click.option("--keepalive", **TIME, help="How long the leases last.")
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


@click.command(
    "report",
    cls=CliCommand,
    example="headrace report mail tsk_01 succeeded --result '{\"sent\": 1}'\n"
    'headrace report mail tsk_01 failed --error "no answer" --delay 10m\n'
    "headrace report mail tsk_01 inflight --keepalive 60s",
)
@queue_argument
@click.argument("task", metavar="TASK")
@click.argument(
    "status", type=click.Choice(get_args(Status), case_sensitive=False), metavar="STATUS"
)
@click.option(
    "--lease",
    metavar="LEASE",
    help="As `headrace dequeue` gave it; better HEADRACE_LEASE: others can see a command line.",
)
@_status_options
@click.pass_obj
def report_command(
    session: CliSession,
    /,
    queue: str,
    task: str,
    *,
    status: Status,
    lease: str | None,
    **given: Any,
) -> Exit:
    """Report on a task that `headrace dequeue` took.

    STATUS is SUCCEEDED, INFLIGHT (still at it: the lease lasts as long again), FAILED, RELEASED
    (given back, no attempt used) or MOVED, upper or lower case.  Where an option takes JSON, - is
    stdin.
    """
    _check(status, given)
    lease = lease or session.env.get(LEASE_VARIABLE)
    if not lease:
        raise click.UsageError(f"say which --lease, or set {LEASE_VARIABLE}")
    (result,) = session.client.report(
        queue, [Report(task_id=task, lease_id=lease, status=status, **_fields(given))]
    )
    return _show(session, result)


def _check(status: Status, given: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    for name, statuses in ONLY_WITH.items():
        present = given[name] not in (None, ()) and given[name] is not False  # but 0 says something
        if present and status not in statuses:
            option = "tag" if name == "tags" else name.replace("_", "-")
            words = " or ".join(", ".join(statuses).rsplit(", ", 1))
            raise click.UsageError(f"--{option} goes with {words}")
    if status == "MOVED" and given["to"] is None:
        raise click.UsageError("MOVED needs --to QUEUE")


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a report, from the options."""
    texts = {name: given[name] for name in ("result", "progress", "payload")}
    failure = Failure(type=given["error_type"] or "", message=given["error"] or "")
    return {
        **{
            name: params.json_of(f"--{name}", text)
            for name, text in texts.items()
            if text is not None
        },
        "error": None if failure == Failure() else failure,
        "retryable": not given["not_retryable"],
        "delay_in_seconds": given["delay"],
        "to_queue": given["to"],
        "tags": given["tags"],
        "keepalive_timeout_in_seconds": given["keepalive"],
    }


def _show(session: CliSession, result: Reported) -> Exit:
    """Say what became of the report, and return the exit code for it."""
    if session.json:
        document(result)
    if result.outcome == "OK":
        session.note(f"Task {result.task_id} is {_state(result)}.")
        return Exit.DONE
    why = f": {escape_unseen(result.detail)}" if result.detail else ""
    click.echo(f"error: {result.outcome}{why}", err=True)
    return _REFUSED[result.outcome]


def _state(result: Reported) -> str:
    """The state of the task now, in words."""
    if result.lease is not None:
        return f"{result.state}, leased until {when(result.lease.expires_at)}"
    if result.state == State.ENQUEUED:
        return f"{result.state}, due {when(result.scheduled_at)}"
    return str(result.state or "gone: its queue keeps nothing of it")
