"""`headrace sync`: queue settings and schedules as an app declares them, shown as a diff."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.text import Text

from headrace.cli.commands import CliCommand, dry_run_option
from headrace.cli.output import console, document, problem_fields
from headrace.cli.session import CliSession, Exit, Failed
from headrace.cli.workers import load_app
from headrace.client.app.sync import (
    AppSync,
    FieldChange,
    StepOutcome,
    StepResult,
    SyncAction,
    SyncPlan,
    SyncStep,
    failure_of,
)
from headrace.client.codec import PLAIN
from headrace.domain.errors import InvalidRequest
from headrace.domain.texts import amount, escape_unseen

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client

_LONGEST: Final = 100  # characters of a value in a diff
_SIGNS: Final = {
    SyncAction.CREATE: ("+", "green", "created"),
    SyncAction.CHANGE: ("~", "yellow", "changed"),
    SyncAction.REMOVE: ("-", "red", "removed"),
    SyncAction.CONFLICT: ("!", "red", ""),
}
_NOTES: Final = {StepOutcome.FAILED: ": failed", StepOutcome.SKIPPED: ": not tried"}


@click.command(
    "sync",
    cls=CliCommand,
    example="headrace sync shop.tasks:app --dry-run\nheadrace sync shop.tasks:app --prune",
)
@click.argument("app", metavar="MODULE[:APP]")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the schedules that this app created and no longer declares.",
)
@dry_run_option("Only show the differences; exit with 7 if there are any.")
@click.pass_obj
def sync_command(session: CliSession, app: str, *, prune: bool, dry_run: bool) -> Exit | None:
    """Bring queue settings and schedules to what an app declares.

    Settings that the app does not name keep their values, and the schedules of other apps and of
    operators stay.  Queues are created and changed, never removed.
    """
    app, found = load_app(app)
    try:
        declares = found.declares(app)
    except TypeError as error:  # the app declares something impossible
        raise Failed(f"{app}: {error}") from error
    secret = found.codec is not PLAIN
    results: list[StepResult] = []
    with _connected(session, found) as client:
        sync = AppSync(client, declares, everywhere=found.name is not None)
        plan = sync.plan(prune=prune)
        try:
            for step in plan.steps if dry_run else ():
                _show(session, step, secret=secret)
            for result in () if dry_run else sync.apply(plan.steps):
                results.append(result)
                _show(session, result.step, _NOTES.get(result.outcome, ""), secret=secret)
        finally:  # also after Ctrl-C
            if session.json:
                document(_document(found.name or app, plan, results, secret=secret))
            elif not any(one.error for one in results):
                _summarize(session, plan, results, dry_run=dry_run)
    failure = failure_of(results)
    if failure is not None:
        raise failure
    return Exit.DIFFERENT if dry_run and plan.steps else None


@contextmanager
def _connected(session: CliSession, app: "App") -> "Iterator[Client]":
    """Yield a client with the codec of *app*, because payloads are compared and written.

    An address of the command line or the environment takes precedence over the app's.
    """
    known = session.given_client
    if known is None and session.address() is None:
        with suppress(InvalidRequest):  # the app has none either: connect() says how to name one
            known = app.client
    if known is not None:
        yield known
        return
    with session.connect(codec=app.codec, retries=session.retries) as client:
        yield client


def _show(session: CliSession, step: SyncStep, note: str = "", *, secret: bool) -> None:
    """Print a step and its fields, unless --json was given."""
    if session.json:
        return
    out = console()
    sign, style, _ = _SIGNS[step.action]
    out.print(Text(f"{sign} {step.subject}", style=style).append(note), soft_wrap=True)
    for change in step.fields:
        old, new = _values(change, secret=secret)
        line = Text(f"    {change.field}: ")
        if step.action is not SyncAction.CREATE:
            line.append(_short(old), "red").append(" → ")
        out.print(line.append(_short(new), "green"), soft_wrap=True)


def _summarize(
    session: CliSession, plan: SyncPlan, results: Sequence[StepResult], *, dry_run: bool
) -> None:
    steps = plan.steps
    if not dry_run:
        steps = tuple(one.step for one in results if one.outcome is StepOutcome.DONE)
    counts = Counter(step.action for step in steps)
    would = "would be " if dry_run else ""
    parts = [f"{counts[one]} {would}{word}" for one, (*_, word) in _SIGNS.items() if counts[one]]
    unchanged = len(plan.unchanged)
    if parts:
        session.note(f"{', '.join(parts)}; {unchanged} as declared.")
    elif not plan.steps:
        session.note(f"Nothing to do: {amount(unchanged, 'thing')} as declared.")
    if plan.undeclared:
        names = ", ".join(f"{name} of {queue}" for queue, name in plan.undeclared)
        session.note(f"No longer declared; --prune removes them: schedule {names}.")


def _document(
    app: str, plan: SyncPlan, results: Sequence[StepResult], *, secret: bool
) -> dict[str, Any]:
    steps = zip_longest(plan.steps, results)  # results are fewer after Ctrl-C
    undeclared = [{"queue": queue, "schedule": name} for queue, name in plan.undeclared]
    return {
        "app": app,
        "steps": [_step(step, result, secret=secret) for step, result in steps],
        "unchanged": plan.unchanged,
        "undeclared": undeclared,
    }


def _step(step: SyncStep, result: StepResult | None, *, secret: bool) -> dict[str, Any]:
    values = [(change.field, *_values(change, secret=secret)) for change in step.fields]
    error = result.error if result else None
    return {
        "action": step.action,
        "queue": step.queue,
        "schedule": step.schedule,
        "fields": [{"field": field, "old": old, "new": new} for field, old, new in values],
        "outcome": result.outcome if result else None,
        "error": problem_fields(error, error.detail) if error else None,
    }


def _values(change: FieldChange, *, secret: bool) -> tuple[Any, Any]:
    """Return the values of a field; a payload that the app encrypts is not shown."""
    if not secret or change.field != "payload":
        return change.old, change.new
    return change.old and "(encrypted)", change.new and "(encrypted)"


def _short(value: object) -> str:
    """Return *value* in one line of limited length."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = escape_unseen(text).replace("\n", "\\n")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
