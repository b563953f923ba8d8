"""`headrace sync`: queue settings and schedules as an app declares them, shown as a diff."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.text import Text

from headrace.cli.commands import CliCommand, dry_run_option
from headrace.cli.output import console, document, many, problem_fields
from headrace.cli.session import CliSession, Exit, Failed
from headrace.cli.workers import load_app
from headrace.client.app.drift import FieldChange, SyncAction, SyncPlan, SyncStep
from headrace.client.app.syncing import AppSync, StepOutcome, StepResult, failure_of
from headrace.client.codec import PLAIN
from headrace.domain.errors import InvalidRequest
from headrace.domain.escaping import escape_unseen

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client

_LONGEST: Final = 100  # characters of a value in a diff
_SIGNS: Final = {
    SyncAction.CREATE: ("+", "green"),
    SyncAction.CHANGE: ("~", "yellow"),
    SyncAction.REMOVE: ("-", "red"),
    SyncAction.CONFLICT: ("!", "red"),
}
_DONE: Final = {
    SyncAction.CREATE: "created",
    SyncAction.CHANGE: "changed",
    SyncAction.REMOVE: "removed",
}


@click.command(
    "sync",
    cls=CliCommand,
    example="headrace sync shop.tasks:app --dry-run\nheadrace sync shop.tasks:app --prune",
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the schedules that this app has made and declares no more.",
)
@dry_run_option("Only show what differs; exit with 7 if something does.")
@click.pass_obj
def sync_command(session: CliSession, app: str, *, prune: bool, dry_run: bool) -> Exit | None:
    """Bring queue settings and schedules to what an app declares.

    Settings that the app does not name stay as they are, and so do the schedules of other apps and
    of operators.  Queues are made and changed, never removed.
    """
    found = load_app(app)
    try:
        declares = found.declares(app)
    except TypeError as error:  # of an app that declares what cannot be
        raise Failed(f"{app}: {error}") from error
    with _connected(session, found) as client:
        sync = AppSync(client, declares, everywhere=found.name is not None)
        plan = sync.plan(prune=prune)
        diff = _Diff(session, plan, app=found.name or app, secret=found.codec is not PLAIN)
        if dry_run:
            diff.show(StepResult(step, StepOutcome.SKIPPED) for step in plan.steps)
            diff.end("would be ")
            return Exit.DIFFERENT if plan.steps else None
        results = diff.results = []
        try:
            for result in sync.apply(plan.steps):
                results.append(result)
                diff.show([result])
        finally:  # when it is interrupted too
            diff.end()
    failure = failure_of(results)
    if failure is not None:
        raise failure
    return None


@contextmanager
def _connected(session: CliSession, app: "App") -> "Iterator[Client]":
    """Yield a client with the codec of *app*, as payloads are compared and written.

    An address of the command line or the environment goes before one that the app was given.
    """
    known = session.given_client
    if known is None and session.address() is None:
        with suppress(InvalidRequest):  # it has none either: connect() says how to name one
            known = app.client
    if known is not None:
        yield known
        return
    client = session.connect(codec=app.codec, retries=session.retries)
    try:
        yield client
    finally:
        client.close()


class _Diff:
    """Shows steps as they are taken, or all of them as one document."""

    def __init__(self, session: CliSession, plan: SyncPlan, *, app: str, secret: bool) -> None:
        self._session, self._plan, self._app, self._secret = session, plan, app, secret
        self.results: list[StepResult] | None = None  # None: nothing is to be done

    def show(self, results: Iterable[StepResult]) -> None:
        """Show what became of steps to a person."""
        if self._session.json:
            return
        out = console()
        for result in results:
            step = result.step
            sign, style = _SIGNS[step.action]
            line = Text(f"{sign} {step.subject}", style=style)
            if result.error is not None:
                line.append(": failed")
            elif self.results is not None and result.outcome is StepOutcome.SKIPPED:
                line.append(": not tried")
            out.print(line, soft_wrap=True)
            for change in step.fields:
                old, new = self._values(change)
                line = Text(f"    {change.field}: ")
                if step.action is not SyncAction.CREATE:
                    line.append(_short(old), "red").append(" → ")
                out.print(line.append(_short(new), "green"), soft_wrap=True)

    def end(self, would: str = "") -> None:
        """Say what has come of all, to a person in a line."""
        if self._session.json:
            document(self._document())
            return
        if any(one.error for one in self.results or ()):
            return  # the error says it
        plan = self._plan
        steps = plan.steps
        if self.results is not None:
            steps = tuple(one.step for one in self.results if one.outcome is StepOutcome.DONE)
        counts = Counter(step.action for step in steps)
        parts = [f"{counts[one]} {would}{word}" for one, word in _DONE.items() if counts[one]]
        if parts:
            self._session.note(f"{', '.join(parts)}; {len(plan.unchanged)} as declared.")
        elif not plan.steps:
            things = many(len(plan.unchanged), "thing")
            self._session.note(f"Nothing to do: {things} as declared.")
        if plan.undeclared:
            names = ", ".join(f"{name} of {queue}" for queue, name in plan.undeclared)
            self._session.note(f"Declared no more, and removed by --prune: schedule {names}.")

    def _document(self) -> dict[str, Any]:
        steps = zip_longest(self._plan.steps, self.results or ())  # a beginning, if interrupted
        return {
            "app": self._app,
            "steps": [self._step(step, result) for step, result in steps],
            "unchanged": self._plan.unchanged,
            "undeclared": [
                {"queue": queue, "schedule": name} for queue, name in self._plan.undeclared
            ],
        }

    def _step(self, step: SyncStep, result: StepResult | None) -> dict[str, Any]:
        fields = []
        for change in step.fields:
            old, new = self._values(change)
            fields.append({"field": change.field, "old": old, "new": new})
        return {
            "action": step.action,
            "queue": step.queue,
            "schedule": step.schedule,
            "fields": fields,
            "outcome": result.outcome if result else None,
            "error": (
                problem_fields(result.error, result.error.detail)
                if result and result.error
                else None
            ),
        }

    def _values(self, change: FieldChange) -> tuple[Any, Any]:
        """The values of a field; those that the app encrypts are not shown."""
        if not self._secret or change.field != "payload":
            return change.old, change.new
        return change.old and "(encrypted)", change.new and "(encrypted)"


def _short(value: object) -> str:
    """*value* as a diff has it, in one line."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = escape_unseen(text).replace("\n", "\\n")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
