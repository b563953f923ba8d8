"""`headrace task`: looking at tasks.  What changes them is in `headrace.cli.bulk`."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Literal

import click

from headrace.cli.bulk import delete, move, restart, run
from headrace.cli.commands import Group, queue_argument
from headrace.cli.filters import filter_options, take_filters
from headrace.cli.output import answer, clean, document, facts, line, pretty, rows, span, when
from headrace.cli.session import Session
from headrace.cli.tail import tail
from headrace.client.models import Task
from headrace.domain import limits

SHOWN: Final = 50
"""Tasks in a table, unless --limit says otherwise."""


@click.group(
    "task",
    cls=Group,
    example="headrace task list mail --state DEAD\nheadrace task show tsk_01",
)
def task_command() -> None:
    """Look at tasks, and run, restart, move or delete them."""


@task_command.command("show", example="headrace task show order-4711")
@click.argument("id")
@click.option("--no-payload", is_flag=True, help="Leave the payload out.")
@click.pass_obj
def show(session: Session, id: str, *, no_payload: bool) -> None:
    """Show a task: payload, result, errors, and where it has been."""
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
    texts = ("worker", "dedupe_key", "schedule", "tags")
    pairs += [(name, value) for name in texts if (value := getattr(task, name))]
    if task.keepalive_timeout_in_seconds is not None:
        pairs.append(("keepalive", span(task.keepalive_timeout_in_seconds)))
    pairs += [("left", f"{hop.queue} at {when(hop.at)}") for hop in task.trail]
    for error in task.errors:
        by = f" by {error.worker}" if error.worker else ""
        pairs.append(
            (
                f"attempt {error.attempt}",
                f"{error.kind} at {when(error.at)}{by}: {error.type} {error.message}".rstrip(": "),
            )
        )
    for name in ("progress", "result", "payload"):
        raw = bytes(getattr(task, f"{name}_json"))
        if raw != b"null":
            pairs.append((name, pretty(raw)))
    facts(pairs)
    detail = next((error.detail for error in task.errors[::-1] if error.detail), "")
    if detail:
        click.echo(f"\n{clean(detail.rstrip())}")


@task_command.command("list", example="headrace task list mail --state DEAD --error timeout")
@queue_argument
@filter_options
@click.option("--order", type=click.Choice(["asc", "desc"]), help="By time within a state: asc.")
@click.option("--payload", is_flag=True, help="With payloads.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"No more than that; else {SHOWN} in a table, and all of them with --json.",
)
@click.pass_obj
def list_(
    session: Session,
    /,
    queue: str,
    *,
    order: Literal["asc", "desc"] | None,
    payload: bool,
    limit: int | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """List the tasks of a queue; with --json one a line, any number in constant memory."""
    where = take_filters(given)
    most = limit or (None if session.json else SHOWN)
    page = min(limits.LIST_PAGE, most + 1) if most else limits.LIST_PAGE
    tasks = session.client.list_tasks(queue, **where, order=order, payload=payload, limit=page)
    if session.json:
        for task in islice(tasks, most):
            line(task, without=() if payload else ("payload",))
        return
    shown = list(islice(tasks, most))
    _table(shown, payload=payload)
    if next(tasks, None) is not None:
        session.note(f"There are more: --limit shows more than {most}, --json all.")


def _table(tasks: Iterable[Task], *, payload: bool) -> None:
    columns = ["Task", "Status", "Due", "Attempts", "Worker", "Tags", "Latest error"]
    rows(
        [*columns, "Payload"] if payload else columns,
        (
            (
                task.id,
                task.status,
                task.scheduled_at,
                task.attempts,
                task.worker,
                task.tags,
                _latest(task),
                *([bytes(task.payload_json).decode()] if payload else []),
            )
            for task in tasks
        ),
        right=("Attempts",),
    )


def _latest(task: Task) -> str | None:
    if not task.errors:
        return None
    error = task.errors[-1]
    return f"{error.type} {error.message}".strip() or error.kind


@task_command.command("count", example="headrace task count mail --state pending --tag team=sales")
@queue_argument
@filter_options
@click.pass_obj
def count(session: Session, /, queue: str, **given: Any) -> None:  # noqa: ANN401
    """Count the tasks of a queue."""
    counted = session.client.count_tasks(queue, **take_filters(given))

    def show_() -> None:
        states = [(state, number) for state, number in counted.by_state.items()]
        rows(("State", "Tasks"), [*states, ("together", counted.count)], right=("Tasks",))
        if not counted.exact:
            session.note("There are more: that many were counted.")

    answer(session, counted, show_)


@task_command.command("explain", example="headrace task explain order-4711")
@click.argument("id")
@click.pass_obj
def explain(session: Session, id: str) -> None:
    """Say why a task is not running."""
    reasons = session.client.explain_task(id)
    if session.json:
        document(reasons)
    elif not reasons:
        click.echo("Nothing holds it: the next worker that asks gets it.")
    else:
        rows(
            ("Reason", "What", "Until"),
            ((reason.code, reason.detail, reason.until) for reason in reasons),
        )


for _command in (delete, run, restart, move, tail):
    task_command.add_command(_command)
