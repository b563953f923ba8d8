"""Commands that change tasks, by their ids or by filters."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from headrace.cli.action import begun
from headrace.cli.commands import (
    CliCommand,
    dry_run_option,
    options,
    queue_names,
    queue_option,
    reason_option,
    undo_option,
    yes_option,
)
from headrace.cli.filters import described, filter_options, take_filters, with_states
from headrace.cli.output import (
    count_of,
    document,
    how_long,
    progress,
    rows,
    undo_note,
    why_not,
)
from headrace.cli.session import CliSession, Exit
from headrace.client.calls.many import ActionName, bulk_tasks, undo
from headrace.client.operations import answers
from headrace.domain.errors import Finished, NotFound
from headrace.domain.operate import BACK_ALREADY
from headrace.domain.texts import amount
from headrace.wire.tasks import Bulk, BulkResult, Undoable

_target: Final = options(
    click.argument("ids", nargs=-1, metavar="[ID]..."),
    queue_option,
    filter_options,
    click.option(
        "--all", "every", is_flag=True, help="Every task of the queue that the command applies to."
    ),
    dry_run_option("Only count the tasks."),
    reason_option,
    click.option(
        "--background",
        is_flag=True,
        help="Let the service do it to the tasks that exist now, and do not wait; `headrace action "
        "show` shows the progress. With filters or --all.",
    ),
)

_DONE: Final = {
    "delete": "deleted",
    "run": "due now",
    "restart": "restarted",
    "move": "moved",
    "cancel": "cancelled",
}
_ASKED: Final = {"delete": "deleted", "cancel": "cancelled"}
_UNFINISHED: Final = "ENQUEUED,INFLIGHT"
_ONE: Final = {"NOT_FOUND": Exit.NOT_FOUND, "SKIPPED": Exit.CONFLICT}


@click.command(
    "delete",
    cls=CliCommand,
    example="headrace task delete order-4711\n"
    "headrace task delete --queue mail --state DEAD --scheduled-before -7d --dry-run",
)
@_target
@undo_option
@yes_option
@click.pass_obj
def delete(
    session: CliSession, /, ids: tuple[str, ...], *, yes: bool, undo_for: float, **given: Any
) -> Exit:
    """Delete tasks, by id or by filter."""
    return _act(session, "delete", ids, given, yes=yes, undo_for=undo_for)


@click.command(
    "trigger",
    cls=CliCommand,
    example="headrace task trigger order-4711\nheadrace task trigger --queue mail --tag team=sales",
)
@_target
@click.pass_obj
def trigger(session: CliSession, /, ids: tuple[str, ...], **given: Any) -> Exit:
    """Make waiting tasks due now."""
    return _act(session, "run", ids, given)


@click.command(
    "restart",
    cls=CliCommand,
    example="headrace task restart --queue mail --state DEAD --error timeout",
)
@_target
@click.pass_obj
def restart(session: CliSession, /, ids: tuple[str, ...], **given: Any) -> Exit:
    """Restart dead tasks; with --state SUCCEEDED succeeded ones, which then run again."""
    return _act(session, "restart", ids, given)


@click.command(
    "move",
    cls=CliCommand,
    example="headrace task move order-4711 --to archive\n"
    "headrace task move --queue mail --state DEAD --to quarantine",
)
@_target
@click.option(
    "--to", required=True, metavar="QUEUE", shell_complete=queue_names, help="The target queue."
)
@click.pass_obj
def move(session: CliSession, /, ids: tuple[str, ...], *, to: str, **given: Any) -> Exit:
    """Move waiting or dead tasks to another queue."""
    return _act(session, "move", ids, given, to_queue=to)


@click.command(
    "cancel",
    cls=CliCommand,
    example="headrace task cancel order-4711\nheadrace task cancel --queue mail --tag team=sales",
)
@_target
@yes_option
@click.pass_obj
def cancel(session: CliSession, /, ids: tuple[str, ...], *, yes: bool, **given: Any) -> Exit:
    """Cancel tasks that wait or are in flight: they are dead, and their workers stop them."""
    return _act(session, "cancel", ids, given, yes=yes)


def _act(
    session: CliSession,
    action: ActionName,
    ids: Sequence[str],
    given: dict[str, Any],
    *,
    to_queue: str | None = None,
    yes: bool = False,
    undo_for: float | None = None,
) -> Exit:
    where = take_filters(given)
    queue: str | None = given["queue"]
    background, dry_run = given["background"], given["dry_run"]
    how: dict[str, Any] = {
        "to_queue": to_queue,
        "undo_in_seconds": undo_for,
        "reason": given["reason"],
    }
    if ids and (where or given["every"]):
        raise click.UsageError("give ids or filters, not both")
    if background and (ids or dry_run):
        other = "ids" if ids else "--dry-run"
        raise click.UsageError(f"--background needs filters or --all, and excludes {other}")
    if ids:
        pages = _by_ids(session, action, ids, queue, {**how, "dry_run": dry_run})
        return _show_outcome(session, action, pages, total=len(ids), dry_run=dry_run)
    if queue is None:
        raise click.UsageError("no tasks are named: give ids, or --queue with filters or --all")
    if not where and not given["every"]:
        raise click.UsageError(f"no tasks of {queue} are named: give filters, or --all")
    if action == "restart":
        where = with_states(where, "DEAD")  # succeeded tasks run again only if --state names them
    total = None
    if action in _ASKED and not yes and not dry_run:
        matching = with_states(where, _UNFINISHED) if action == "cancel" else where
        total = count_of(session, queue, matching).count
        which = f"{amount(total, 'task')} of {queue} ({described(where)})"
        undo = "" if undo_for is None else how_long(undo_for)
        session.ask(f"{which} will be {_ASKED[action]}{undo}.", yes=yes)
    if background:
        one = session.client.begin_action(action, [queue], all=not where, **how, **where)
        return begun(session, one)
    steps = bulk_tasks(action, queue, all=not where, dry_run=dry_run, **how, **where)
    pages = session.client.stream(answers(steps))
    return _show_outcome(session, action, pages, total=total, dry_run=dry_run)


def _by_ids(
    session: CliSession,
    action: ActionName,
    ids: Sequence[str],
    queue: str | None,
    how: dict[str, Any],
) -> Iterator[Bulk]:
    """Act on tasks by id; the queue of each is looked up unless *queue* is given."""
    client = session.client
    by_queue: dict[str, list[str]] = defaultdict(list)
    if action == "cancel" and queue is None and not how["dry_run"]:
        for one in ids:
            yield _cancelled(session, one, how["reason"])
        return
    for one in ids:
        try:
            by_queue[queue or client.get_task(one, payload=False).queue].append(one)
        except NotFound:
            yield _bulk_of(one, "NOT_FOUND")
    for name, some in by_queue.items():
        yield from client.stream(answers(bulk_tasks(action, name, ids=some, **how)))


def _cancelled(session: CliSession, one: str, reason: str | None) -> Bulk:
    """Cancel one task by its id, in any queue.  It can be repeated."""
    try:
        session.client.cancel_task(one, reason=reason)
    except NotFound:
        return _bulk_of(one, "NOT_FOUND")
    except Finished as error:
        return _bulk_of(one, "SKIPPED", error.detail)
    return _bulk_of(one, "CANCELLED")


def _bulk_of(id: str, outcome: Any, detail: str | None = None) -> Bulk:
    result = BulkResult(id=id, outcome=outcome, detail=detail)
    matched, changed = outcome != "NOT_FOUND", outcome == "CANCELLED"
    return Bulk(matched=int(matched), changed=int(changed), results=[result])


def _show_outcome(
    session: CliSession,
    action: ActionName,
    pages: Iterator[Bulk],
    *,
    total: int | None,
    dry_run: bool,
) -> Exit:
    """Follow the pages with a progress bar, and print the result."""
    matched = changed = 0
    results: list[BulkResult] = []
    undos: dict[str, Undoable] = {}
    with progress(session) as bar:
        seen = bar.add_task("Tasks", total=total)
        for page in pages:
            matched, changed = matched + page.matched, changed + page.changed
            results += page.results
            if page.undo is not None:
                undos[page.undo.id] = page.undo
            bar.update(seen, completed=len(results) or matched)
    if session.json:
        made = {"matched": matched, "changed": changed, "results": results, "dry_run": dry_run}
        document(made | ({"undos": list(undos.values())} if undos else {}))
    else:
        if results:
            rows(
                ("Task", "Outcome", "Why"), ((one.id, one.outcome, why_not(one)) for one in results)
            )
        would = "would be " if dry_run else ""
        session.note(f"{amount(matched if dry_run else changed, 'task')} {would}{_DONE[action]}.")
        if changed < matched and not dry_run:
            session.note(f"{matched - changed:,} more matched, and were skipped.")
        for undo in undos.values() if changed else ():
            session.note(undo_note(undo))
    failed = [one.outcome for one in results if one.outcome in _ONE]
    if len(failed) == 1 and len(results) == 1:
        return _ONE[failed[0]]
    return Exit.FAILED if failed or (changed < matched and not dry_run) else Exit.DONE


@click.command("undo", cls=CliCommand, example="headrace undo und_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@click.pass_obj
def undo_command(session: CliSession, id: str) -> Exit:
    """Bring back deleted tasks.

    ID is printed by `task delete` and `queue purge`.  A task stays deleted if another task has its
    id or dedupe key, or if its retention is over.
    """
    results: list[BulkResult] = []
    for page in session.client.stream(answers(undo(id))):
        results += page.results
    restored = sum(one.outcome == "RESTORED" for one in results)
    if session.json:
        document({"matched": len(results), "changed": restored, "results": results})
    before = sum(one.detail == BACK_ALREADY for one in results)
    session.note(f"{amount(restored, 'task')} restored.")
    if before or not results:
        session.note("No other task was left to restore: this undo was done before.")
    left = [one for one in results if one.outcome != "RESTORED" and one.detail != BACK_ALREADY]
    away = Counter(why_not(one) for one in left)
    for why, number in away.most_common():
        session.note(f"{amount(number, 'task')} not restored: {why}.")
    return Exit.FAILED if left else Exit.DONE
