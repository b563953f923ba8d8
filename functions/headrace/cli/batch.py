"""`headrace batch`: batches and workflows, and their progress."""

from collections.abc import Iterator
from typing import Final

import click
import msgspec

from headrace.cli.commands import CliGroup, limit_option, query_option, yes_option
from headrace.cli.output import (
    Column,
    answer,
    document,
    done,
    follow,
    listing,
    rows,
    span,
    table,
)
from headrace.cli.session import CliSession
from headrace.client.calls.batches import cancel_batch, recount_batch
from headrace.domain.texts import amount, escape_unseen
from headrace.domain.workflow import WORKFLOW_TAG, part_id
from headrace.wire.batches import BatchStep, BatchSteps


@click.group("batch", cls=CliGroup, example="headrace batch show night")
def batch_command() -> None:
    """Show, close, cancel and delete batches and workflows."""


@batch_command.command("list", example="headrace batch list --prefix import-")
@click.option("--prefix", metavar="TEXT", help="Only ids with this prefix.")
@click.option("--parts", is_flag=True, help="Also the batches that workflows create for steps.")
@query_option("state:open dead:yes")
@limit_option
@click.pass_obj
def list_batches(
    session: CliSession, *, prefix: str | None, parts: bool, query: str | None, limit: int | None
) -> None:
    """List batches by id; generated ids sort by age."""
    every = session.client.list_batches(prefix=prefix, parts=parts, query=query)
    listing(session, every, _COLUMNS, limit, one_document=True)


@batch_command.command("show", example="headrace batch show wfl_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> None:
    """Show a batch: how many members are live, ended and dead, and its callbacks.

    Its first 100 members follow, and up to 250 steps of a workflow that wait.  If there are more,
    the output names the commands that show them.
    """
    batch, found = session.client.get_batch(id), session.client.batch_steps(id)
    if session.json:
        document({"batch": batch, **msgspec.structs.asdict(found)})
    else:
        table(_COLUMNS, [batch])
        _steps(id, found)


@batch_command.command("close", example="headrace batch close night --total 200")
@click.argument("id")
@click.option("--total", type=int, required=True, metavar="N", help="Number of its members.")
@click.pass_obj
def close(session: CliSession, id: str, total: int) -> None:
    """Set the number of members of a batch; it can be changed until the batch has ended."""
    batch = session.client.close_batch(id, total)
    done(session, f"Batch {id} has {total} members.", batch)


@batch_command.command("recount", example="headrace batch recount night")
@click.argument("id")
@click.pass_obj
def recount(session: CliSession, id: str) -> None:
    """Recount the members of a batch, so that it ends and calls back if all have ended.

    Use it if a batch does not end after the recorder was away for more than six hours.
    """
    found = follow(session, recount_batch(id), "Found", lambda one: one.succeeded + one.dead)
    numbers = [
        ("SUCCEEDED", found.succeeded, found.was_succeeded),
        ("DEAD", found.dead, found.was_dead),
    ]
    columns = ("State", "Members", "Counter said")
    answer(session, found, lambda: rows(columns, numbers))
    refusal = found.refusal
    session.note(f"The batch is unchanged: {refusal}." if refusal else "The batch is corrected.")


@batch_command.command("cancel", example="headrace batch cancel wfl_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@yes_option
@click.pass_obj
def cancel(session: CliSession, id: str, *, yes: bool) -> None:
    """Cancel the members of a batch that have not ended, and the next steps of a workflow.

    The batch takes no new members, and ends.
    """
    session.ask(f"The members of {id} that have not ended will be cancelled.", yes=yes)
    number = follow(session, cancel_batch(id), "Cancelled", lambda one: one.cancelled).cancelled
    done(session, f"Cancelled {amount(number, 'task')} of {id}.", {"id": id, "cancelled": number})


@batch_command.command("delete", example="headrace batch delete night")
@click.argument("id")
@yes_option
@click.pass_obj
def delete(session: CliSession, id: str, *, yes: bool) -> None:
    """Delete a batch and its callbacks; its members continue."""
    session.ask(f"Batch {id} and its callbacks will be deleted.", yes=yes)
    session.client.delete_batch(id)
    done(session, f"Batch {id} is deleted.", {"id": id})


def _steps(id: str, found: BatchSteps) -> None:
    """Print a row for each step, and the commands that show the others."""
    names = {step.task_id: step.name or step.task_id for step in found.steps}

    def after(step: BatchStep) -> str:
        more = f" and {len(step.after) - _NAMES} more" if len(step.after) > _NAMES else ""
        return ", ".join(names[one] for one in step.after[:_NAMES]) + more

    columns: dict[str, Column] = {
        "Step": "name",
        "State": lambda step: (
            step.status or ("not kept" if step.made else "cancelled" if step.stopped else "waits")
        ),
        "Task": lambda step: step.task_id if step.made else None,
        "Queue": "queue",
        "After": after,
    }
    if found.steps:
        table(columns, found.steps)
    for text in _left_out(id, found):
        click.echo(escape_unseen(text))


def _left_out(id: str, found: BatchSteps) -> Iterator[str]:
    """Yield a line for members that are not shown, with the command that shows them."""
    if found.left_out:
        more = f"and {amount(found.left_out, 'member')} more"
        queues = sorted({step.queue for step in found.steps if step.name})
        if queues:
            also = f", and so for {', '.join(queues[1:])}" if len(queues) > 1 else ""
            yield f"{more}: `headrace task list {queues[0]} --tag {WORKFLOW_TAG}={id}`{also}"
        else:
            yield f"{more}: a batch names its first members, and up to 100 dead ones (--json)"
    if found.more_wait:
        yield f"and more that wait: `headrace batch list --parts --prefix {part_id(id, '')}`"


_NAMES: Final = 5  # of the steps before a step
_COLUMNS: Final[dict[str, Column]] = {
    "Batch": "id",
    "Total": lambda one: "open" if one.total is None else one.total,
    "Created": "created",
    "Live": "live",
    "Succeeded": "succeeded",
    "Dead": "dead",
    "Deleted": "deleted",
    "Counted": lambda one: (
        None if one.staleness_seconds is None else f"{span(one.staleness_seconds)} ago"
    ),
    "Ended": "finished_at",
    "Called back": lambda one: ", ".join(one.callbacks),
}
