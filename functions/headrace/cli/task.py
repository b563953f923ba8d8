"""`headrace task`: show tasks.  The commands that change tasks are in `cli.bulk`."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

import click

from headrace.cli.bulk import cancel, delete, move, restart, trigger
from headrace.cli.commands import SHOWN, CliGroup, limit_option, queue_argument
from headrace.cli.filters import (
    filter_options,
    list_calls,
    take_filters,
)
from headrace.cli.output import (
    answer,
    count_of,
    document,
    error_line,
    facts,
    fields_of,
    line,
    pretty,
    rows,
    span,
    when,
    write_json,
)
from headrace.cli.params import TIME
from headrace.cli.session import CliSession, Exit, Failed
from headrace.cli.watching import tail
from headrace.domain import limits
from headrace.domain.list_query import called_function
from headrace.domain.task import State
from headrace.domain.task_fields import TITLED
from headrace.domain.texts import amount, escape_unseen
from headrace.wire.tasks import Task


@click.group(
    "task",
    cls=CliGroup,
    example="headrace task list mail --state DEAD\nheadrace task show tsk_01",
)
def task_command() -> None:
    """Show tasks, and trigger, restart, move, cancel or delete them."""


@task_command.command("show", example="headrace task show order-4711")
@click.argument("id")
@click.option("--no-payload", is_flag=True, help="Without the payload.")
@click.pass_obj
def show(session: CliSession, id: str, *, no_payload: bool) -> None:
    """Show a task: payload, result, errors, and the queues it has been in."""
    found = session.client.get_task(id, payload=False if no_payload else None)
    answer(session, found, lambda: _show(found))


def _show(task: Task) -> None:
    pairs: list[tuple[str, object]] = [
        ("id", task.id),
        ("queue", task.queue),
        ("status", f"{task.status} ({task.dead_reason})" if task.dead_reason else task.status),
        ("attempts", f"{task.attempts} of {task.max_retries + 1}"),
        ("due", task.scheduled_at),
        ("created", task.created_at),
        ("expires", task.expires_at),
    ]
    times = ("started_at", "lease_expires_at", "finished_at", "retained_until")
    pairs += [(name, at) for name in times if (at := getattr(task, name)) is not None]
    texts = ("worker", "tags", *(field.api_name for field in TITLED))
    pairs += [(name, value) for name in texts if (value := getattr(task, name))]
    if task.keepalive_timeout_in_seconds is not None:
        pairs.append(("keepalive", span(task.keepalive_timeout_in_seconds)))
    hops = ((hop.queue or "another queue", when(hop.at)) for hop in task.trail)
    pairs += [("left", f"{queue} at {at}") for queue, at in hops]
    for error in task.errors:
        by = f" by {error.worker}" if error.worker else ""
        pairs.append(
            (
                f"attempt {error.attempt}",
                f"{error.kind} at {when(error.at)}{by}: {error_line(error)}",
            )
        )
    for name in ("progress", "last_progress", "result", "payload"):
        raw = bytes(getattr(task, f"{name}_json"))
        if raw != b"null":
            pairs.append((name, pretty(raw)))
    facts(pairs)
    detail = next((error.detail for error in task.errors[::-1] if error.detail), "")
    if detail:
        click.echo(f"\n{escape_unseen(detail.rstrip())}")


@task_command.command("wait", example="headrace task wait order-4711 --for 5m")
@click.argument("id")
@click.option("--for", "most", **TIME, help="Give up after this time, with exit code 8.")
@click.pass_obj
def wait(session: CliSession, id: str, *, most: float | None) -> Exit:
    """Wait until a task has ended, and print its result; with --json the task.

    Ends with 0 if it succeeded, 1 if it is dead, 3 if it does not exist, and 8 after --for.  Moves
    and retries are not an end.
    """
    try:
        found = session.client.wait(id, timeout=most, payload=False)
    except TimeoutError as error:
        raise Failed(str(error), Exit.TIME_OVER) from None
    if session.json:
        document(found)
    elif found.state == State.SUCCEEDED and bytes(found.result_json) != b"null":
        write_json(pretty(bytes(found.result_json)))
    if found.state == State.SUCCEEDED:
        return Exit.DONE
    why = _latest(found)
    session.note(f"{found.id} is dead ({found.dead_reason}){f': {why}' if why else ''}")
    return Exit.FAILED


@task_command.command("list", example="headrace task list mail --state DEAD --error timeout")
@queue_argument
@filter_options
@click.option(
    "--order", type=click.Choice(["asc", "desc"]), help="Order by time within a state: asc."
)
@click.option("--all-ticks", is_flag=True, help="Show every future tick of a schedule.")
@click.option("--payload", is_flag=True, help="With payloads.")
@limit_option
@click.pass_obj
def list_(
    session: CliSession,
    /,
    queue: str,
    *,
    order: Literal["asc", "desc"] | None,
    all_ticks: bool,
    payload: bool,
    limit: int | None,
    **given: Any,
) -> None:
    """List the tasks of a queue; with --json one per line, in constant memory.

    A table shows the first future tick of each schedule, and the number of the others.
    """
    where = {**take_filters(given), "order": order}
    client = session.client
    if session.json:
        page = min(limits.LIST_PAGE, limit or limits.LIST_PAGE)
        tasks = client.list_tasks(queue, **where, payload=payload, limit=page)
        for task in islice(tasks, limit):
            line(task if payload else fields_of(task, "payload"))
        return
    most = limit or SHOWN
    page = min(limits.LIST_PAGE, most + 1)
    listed = list_calls(client, queue, **where, payload=payload, limit=page)
    later: dict[str, list[datetime]] = {}
    if not all_ticks:
        listed = _without_later_ticks(listed, later)
    shown = list(islice(listed, most + 1))
    _table(shown[:most], payload=payload)
    for schedule, ticks in later.items():
        if ticks:
            more = f"{amount(len(ticks), 'more tick')} of {schedule} until {when(max(ticks))}"
            click.echo(escape_unseen(f"… and {more}; --all-ticks shows them"))
    if len(shown) > most:
        session.note(f"There are more: --limit shows more than {most}, --json all.")


def _without_later_ticks(tasks: Iterable[Task], later: dict[str, list[datetime]]) -> Iterator[Task]:
    """Yield *tasks* with the first future tick of each schedule; add the others to *later*."""
    for task in tasks:
        is_tick = task.schedule and task.status == "SCHEDULED" and not task.attempts
        if is_tick and task.schedule in later:
            later[task.schedule].append(task.scheduled_at)
            continue
        if is_tick and task.schedule:
            later[task.schedule] = []
        yield task


_ONLY_IF_ANY: Final = ("Task", "Priority", "Group", "Worker", "Tags", "Latest error")


def _table(tasks: Sequence[Task], *, payload: bool) -> None:
    """Print *tasks* as a table, without empty columns."""
    columns: dict[str, list[object]] = {
        "ID": [task.id for task in tasks],
        "Task": [called_function(bytes(task.payload_json).decode()) for task in tasks],
        "Status": [task.status for task in tasks],
        "Due": [task.scheduled_at for task in tasks],
        "Priority": [task.priority for task in tasks],
        "Group": [task.group_key for task in tasks],
        "Attempts": [task.attempts for task in tasks],
        "Worker": [task.worker for task in tasks],
        "Tags": [task.tags for task in tasks],
        "Latest error": [_latest(task) for task in tasks],
    }
    if payload:
        columns["Payload"] = [bytes(task.payload_json).decode() for task in tasks]
    shown = {
        name: cells for name, cells in columns.items() if any(cells) or name not in _ONLY_IF_ANY
    }
    rows(list(shown), zip(*shown.values(), strict=True))


def _latest(task: Task) -> str | None:
    """Return the latest error; of a succeeded task with its attempt."""
    if not task.errors:
        return None
    error = task.errors[-1]
    past = f"attempt {error.attempt}: " if task.state == "SUCCEEDED" else ""
    return past + error_line(error)


@task_command.command("count", example="headrace task count mail --state pending --tag team=sales")
@queue_argument
@filter_options
@click.pass_obj
def count(session: CliSession, /, queue: str, **given: Any) -> None:
    """Count the tasks of a queue."""
    counted = count_of(session, queue, take_filters(given))
    shown = [*counted.by_state.items(), ("total", counted.count)]
    answer(session, counted, lambda: rows(("State", "Tasks"), shown))


@task_command.command("explain", example="headrace task explain order-4711")
@click.argument("id")
@click.pass_obj
def explain(session: CliSession, id: str) -> None:
    """Show why a task is not running."""
    reasons = session.client.explain_task(id)
    if session.json:
        document(reasons)
    elif not reasons:
        click.echo("It is ready: the next worker that asks gets it.")
    else:
        rows(
            ("Reason", "What", "Until"),
            ((reason.code, reason.detail, reason.until) for reason in reasons),
        )
        if any(reason.code == "finished" for reason in reasons):
            _way_on(session, id)


def _way_on(session: CliSession, id: str) -> None:
    """Print how to restart a dead task."""
    if session.client.get_task(id, payload=False).state == State.DEAD:
        session.note(
            f"`headrace task restart {id}` restarts it with no attempts used; "
            f"`headrace task show {id}` shows its errors."
        )


for _command in (delete, trigger, restart, move, cancel, tail):
    task_command.add_command(_command)
