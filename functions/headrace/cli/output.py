"""Answers: tables for people, JSON for programs; data on stdout, all else on stderr.

With ``--json`` a command that answers with one thing, or with a list that is short by nature,
writes one JSON document; one that goes through any number of things (tasks, the audit, what is
followed) writes NDJSON, one document a line.

Colours, bold type and progress bars are for terminals only, and NO_COLOR is honoured.  Control
characters in data are shown, never sent to the terminal.
"""

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from headrace.cli.session import CliSession
from headrace.client.calls.tasks import count_tasks
from headrace.client.operations import so_far
from headrace.domain.errors import FieldError, HeadraceError
from headrace.domain.operate import SAID
from headrace.domain.texts import escape_unseen, json_escape
from headrace.wire.base import without_halves
from headrace.wire.tasks import BulkResult, Count, Enqueued, TaskError, Undoable

_ANY_WIDTH: Final = 100_000
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"))
_SHORT: Final = 10

# ---------------------------------------------------------------------------------------- JSON


def to_json(value: object) -> str:
    """Return *value* as compact JSON; payloads, results and progress keep their exact text."""
    return msgspec.json.encode(value).decode()


def fields_of(value: msgspec.Struct, *without: str) -> dict[str, Any]:
    """Return the members of an answer by their JSON names, except those named in *without*."""
    members = ((one.encode_name, getattr(value, one.name)) for one in msgspec.structs.fields(value))
    return {
        name: member
        for name, member in members
        if name not in without and member is not msgspec.UNSET
    }


def made_fields(made: Enqueued) -> dict[str, Any]:
    """Return the result of an enqueue without the payload, which the answer does not have."""
    fields = fields_of(made)
    if made.task is not None:
        fields["task"] = fields_of(made.task, "payload")
    return fields


def document(value: object) -> None:
    """Write *value* as the one JSON document of a command."""
    write_json(pretty(msgspec.json.encode(value)))


def line(value: object) -> None:
    """Write *value* as one line of NDJSON."""
    write_json(to_json(value))


def write_json(text: str) -> None:
    """Write JSON; on a terminal, escape in it what the terminal would obey or hide."""
    click.echo(escape_unseen(text, json_escape) if sys.stdout.isatty() else text)


def answer(session: CliSession, value: object, show: Callable[[], None]) -> None:
    """Write *value* as JSON if that was asked for; else *show* it to a person."""
    if session.json:
        document(value)
    else:
        show()


def done(session: CliSession, note: str, value: object) -> None:
    """Say what was done: a *note* for people, and *value* as JSON if that was asked for."""
    session.note(note)
    if session.json:
        document(value)


# -------------------------------------------------------------------------------------- people


def how_long(undo_for: float) -> str:
    """Return what is said of a deletion before it is made: whether it can be undone."""
    if not undo_for:
        return ", and that cannot be undone"
    return f"; for {span(undo_for)} an undo can bring them back"


def undo_note(undo: Undoable) -> str:
    """Return the line that says how what was deleted comes back."""
    return f"Until {when(undo.until)} `headrace undo {undo.id}` brings them back."


def why_not(result: BulkResult) -> str:
    """Return why a task was left alone, in words; empty for one that was not."""
    if result.detail is not None:
        return SAID.get(result.detail, result.detail)
    return "it is not there any more" if result.outcome == "NOT_FOUND" else ""


def console(stream: TextIO | None = None) -> Console:
    """Return a console on stdout, or *stream*; what is no terminal has lines of any length."""
    file = stream or sys.stdout
    width = None if file.isatty() else _ANY_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def cell(value: object, style: str = "") -> Text:
    """Return *value* as it stands in a table: None is a dash, control characters are shown."""
    return Text(escape_unseen(_text_of(value)), style=style)


def _cell_of_one_line(value: object) -> Text:
    return Text(cell(value).plain.replace("\n", r"\n"))


def _text_of(value: object) -> str:
    match value:
        case None:
            shown = ""
        case bool():
            shown = "yes" if value else "no"
        case datetime():
            shown = when(value)
        case int():
            shown = f"{value:,}"
        case float():
            shown = f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"
        case dict():
            shown = " ".join(f"{name}={one}" for name, one in value.items())
        case list() | tuple():
            shown = ", ".join(map(_text_of, value))
        case _:
            shown = str(value)
    return shown or "-"


def when(instant: datetime | None) -> str:
    """Return an instant as people read it: UTC, whole seconds."""
    return "-" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def span(seconds: float | None) -> str:
    """Return a length of time in its largest sensible unit."""
    if seconds is None:
        return "-"
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.1f}".removesuffix(".0") + f" {unit}"
    digits = 1 if seconds < _SHORT else 0
    return f"{seconds:.{digits}f}".removesuffix(".0") + " s"


def grid(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return a table with *columns*, those in *right* set flush right."""
    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for name in columns:
        if name in right:
            made.add_column(name, justify="right", no_wrap=True)
        else:
            made.add_column(name, overflow="fold")
    return made


def rows(
    columns: Sequence[str], of: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Show a table, or say in one line that there is nothing.

    A row is one line: a name with a new line in it would look like a row of its own.
    """
    made = grid(*columns, right=right)
    for row in of:
        made.add_row(*map(_cell_of_one_line, row))
    if made.row_count:
        write(made)
    else:
        click.echo("Nothing there.", err=True)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Show names and values, one pair a line."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(Text(escape_unseen(name)), cell(value))
    write(made)


def write(made: Table | Tree) -> None:
    """Write it to stdout; where that is no terminal, lines end with their last letter."""
    out = console()
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as drawn:
        out.print(made)
    for row in drawn.get().splitlines():
        click.echo(row.rstrip())


def error_line(error: TaskError) -> str:
    """The error of one attempt, in a line."""
    shown = ": ".join(part for part in (error.type, error.message) if part)
    return shown or error.kind.replace("_", " ")


def many(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def pretty(raw: bytes) -> str:
    """Return JSON text with line breaks and indents; as it is if it is nested too deeply."""
    mark = secrets.token_hex(8).encode()
    try:
        set_out = msgspec.json.format(without_halves(raw, mark), indent=2)
    except (msgspec.DecodeError, RecursionError):
        set_out = raw
    return set_out.replace(mark, rb"\u").decode(errors="replace")


def progress(session: CliSession) -> Progress:
    """Return a progress bar on stderr; nothing of it is seen unless that is a terminal."""
    stream = sys.stderr
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stream),
        transient=True,
        disable=session.quiet or not stream.isatty(),
    )


def count_of(session: CliSession, queue: str, where: Mapping[str, Any]) -> Count:
    """Count the tasks of *queue* that are meant, however many calls it takes, and show how far."""
    with progress(session) as bar:
        seen = bar.add_task("Counted", total=None)
        for found in session.client.stream(so_far(count_tasks(queue, **where))):
            bar.update(seen, completed=found.count)
    return found


def problem(session: CliSession, error: Exception, text: str, code: str) -> str:
    """The text for stderr about an error: a line for people, or a JSON document.

    *code* is for errors that no service has answered, and that have none of their own.
    """
    if not session.json:
        return f"error: {escape_unseen(text)}"
    answer = to_json({"error": problem_fields(error, text, code)})
    return escape_unseen(answer, json_escape) if sys.stderr.isatty() else answer


def problem_fields(error: Exception, text: str, code: str = "failed") -> dict[str, Any]:
    """The *error* for programs, its *text* as people read it."""
    if isinstance(error, HeadraceError):
        return {
            "code": error.answered_code or error.code,
            "detail": text,
            "errors": error.errors,
            "request_id": error.request_id,
        }
    return {"code": code, "detail": text, "errors": _wrong_param(error), "request_id": None}


def _wrong_param(error: Exception) -> list[FieldError]:
    """The option or argument that a command line has wrong, by the name it goes by there."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return []
    name = error.param.opts[-1] if isinstance(error.param, click.Option) else error.param.name
    missing = isinstance(error, click.MissingParameter)
    return [FieldError(name or "", "is missing" if missing else error.message)]
