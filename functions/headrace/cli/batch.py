"""`headrace batch`: what tasks were enqueued together, and how far they are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import click
import msgspec
from rich.text import Text
from rich.tree import Tree

from headrace.cli.commands import SHOWN, CliGroup, limit_option, yes_option
from headrace.cli.output import (
    answer,
    cell,
    document,
    done,
    many,
    progress,
    rows,
    span,
    when,
    write,
)
from headrace.cli.session import CliSession
from headrace.client.calls.batches import cancel_batch, recount_batch
from headrace.client.operations import so_far
from headrace.domain.workflow import WORKFLOW_TAG, part_id, step_tree
from headrace.wire.batches import BatchSeen, BatchStep, BatchSteps


@click.group("batch", cls=CliGroup, example="headrace batch show night")
def batch_command() -> None:
    """Look at batches and workflows; close, cancel and forget them."""


@batch_command.command("list", example="headrace batch list --prefix import-")
@click.option("--prefix", metavar="TEXT", help="Only ids that begin so.")
@click.option("--parts", is_flag=True, help="Those too that workflows make for their steps.")
@click.option("--query", metavar="TEXT", help="As in the console: 'state:open dead:yes'.")
@limit_option
@click.pass_obj
def list_batches(
    session: CliSession, *, prefix: str | None, parts: bool, query: str | None, limit: int | None
) -> None:
    """List batches by id; ids made for them sort by age."""
    every = session.client.list_batches(prefix=prefix, parts=parts, query=query)
    if session.json:
        document(list(islice(every, limit)))
        return
    most = limit or SHOWN
    found = list(islice(every, most + 1))
    _table(found[:most])
    if len(found) > most:
        session.note(f"There are more: --limit shows more than {most}, --json all.")


@batch_command.command("show", example="headrace batch show wfl_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> None:
    """Show a batch: how many members are live, ended and dead, and what it called back.

    Below are its first 100 members as a tree: of a workflow, each step under what it waits for,
    of those that wait the first 250.  What is left out is said, with the commands that show it.
    """
    batch, found = session.client.get_batch(id), session.client.batch_steps(id)

    def for_people() -> None:
        _table([batch])
        _tree(id, found)

    answer(session, {"batch": batch, **msgspec.structs.asdict(found)}, for_people)


@batch_command.command("close", example="headrace batch close night --total 200")
@click.argument("id")
@click.option("--total", type=int, required=True, metavar="N", help="Tasks enqueued into it.")
@click.pass_obj
def close(session: CliSession, id: str, total: int) -> None:
    """Say how many members a batch has; until it has ended that may be said again."""
    batch = session.client.close_batch(id, total)
    done(session, f"Batch {id} has {total} members.", batch)


@batch_command.command("recount", example="headrace batch recount night")
@click.argument("id")
@click.pass_obj
def recount(session: CliSession, id: str) -> None:
    """Recount the members of a batch, so that it ends and calls back if all have ended.

    Use it if a batch does not end after the recorder was away for more than six hours.
    """
    with progress(session) as bar:
        seen = bar.add_task("Found", total=None)
        for found in session.client.stream(so_far(recount_batch(id))):
            bar.update(seen, completed=found.succeeded + found.dead)
    numbers = [
        ("SUCCEEDED", found.succeeded, found.was_succeeded),
        ("DEAD", found.dead, found.was_dead),
    ]
    columns = ("State", "Members", "The batch said")
    answer(session, found, lambda: rows(columns, numbers, right=columns[1:]))
    refusal = found.refusal
    session.note(f"The batch stays as it was: {refusal}." if refusal else "The batch is corrected.")


@batch_command.command("cancel", example="headrace batch cancel wfl_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@yes_option
@click.pass_obj
def cancel(session: CliSession, id: str, *, yes: bool) -> None:
    """Cancel a batch or a workflow: what has not ended of it, and every step that would come.

    It takes no new members then, and ends.
    """
    session.ask(f"What has not ended of {id} will be cancelled, and ends it.", yes=yes)
    number = 0
    with progress(session) as bar:
        seen = bar.add_task("Cancelled", total=None)
        for step in session.client.stream(so_far(cancel_batch(id))):
            number = step.cancelled
            bar.update(seen, completed=number)
    done(session, f"Cancelled {many(number, 'task')} of {id}.", {"id": id, "cancelled": number})


@batch_command.command("delete", example="headrace batch delete night")
@click.argument("id")
@yes_option
@click.pass_obj
def delete(session: CliSession, id: str, *, yes: bool) -> None:
    """Forget a batch and what it would call back; its members go on."""
    session.ask(f"Batch {id} and what it would call back will be gone.", yes=yes)
    session.client.delete_batch(id)
    done(session, f"Forgot batch {id}.", {"id": id})


def _tree(id: str, found: BatchSteps) -> None:
    """Show steps, each under what it waits for."""
    names = {step.task_id: step.name or step.task_id for step in found.steps}
    tree = step_tree(found.steps, lambda one: one.task_id, lambda one: one.after)
    whole = Tree("", hide_root=True)
    left = [(node, whole, list[str]()) for node in reversed(tree)]
    while left:
        node, under, above = left.pop()
        step = node.step
        branch = under.add(_step_line(step, [] if step.after == above else step.after, names))
        left += [(one, branch, [step.task_id]) for one in reversed(node.next)]
    for line in _left_out(id, found):
        whole.add(cell(line))
    if whole.children:
        write(whole)


def _left_out(id: str, found: BatchSteps) -> Iterator[str]:
    """Yield what is not shown, and how to see it."""
    if found.left_out:
        more = f"and {many(found.left_out, 'member')} more"
        queues = sorted({step.queue for step in found.steps if step.name})
        if queues:
            also = f", and so for {', '.join(queues[1:])}" if len(queues) > 1 else ""
            yield f"{more}: `headrace task list {queues[0]} --tag {WORKFLOW_TAG}={id}`{also}"
        else:
            yield f"{more}: a batch names its first members, and up to 100 dead ones (--json)"
    if found.more_wait:
        yield f"and more that wait: `headrace batch list --parts --prefix {part_id(id, '')}`"


def _step_line(step: BatchStep, after: Sequence[str], names: Mapping[str, str]) -> Text:
    """Return a step in a line: its name, what became of it, its task and queue, what it awaits."""
    total = "?" if step.part_total is None else step.part_total
    dead = f", {step.part_dead} dead" if step.part_dead else ""
    waits = "" if step.made else f"{step.part_ended} of {total} have ended{dead}"
    more = f" and {len(after) - _NAMES} more" if len(after) > _NAMES else ""
    named = ", ".join(names[one] for one in after[:_NAMES])
    gone = "not kept" if step.made else "cancelled" if step.stopped else "waits"
    state = str(step.status or gone)
    parts = (
        *(step.name, state.lower(), step.task_id if step.made else "", step.queue, waits),
        f"after {named}{more}" if named else "",
    )
    return cell("  ".join(filter(None, parts)), _STYLES.get(state, ""))


_NAMES: Final = 5  # of the steps that one waits for
_STYLES: Final = {"DEAD": "red", "SUCCEEDED": "green"}
_COLUMNS: Final = (
    *("Batch", "Total", "Created", "Live", "Succeeded", "Dead", "Deleted"),
    *("Counted", "Ended", "Called back"),
)


def _table(batches: Sequence[BatchSeen]) -> None:
    rows(
        _COLUMNS,
        (
            (
                one.id,
                "open" if one.total is None else one.total,
                one.created,
                one.live,
                one.succeeded,
                one.dead,
                one.deleted,
                None if one.staleness_seconds is None else f"{span(one.staleness_seconds)} ago",
                when(one.finished_at),
                ", ".join(one.callbacks),
            )
            for one in batches
        ),
        right=_COLUMNS[1:7],
    )
