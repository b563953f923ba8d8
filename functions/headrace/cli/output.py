"""Output: tables for people, JSON for programs; data on stdout, everything else on stderr.

With ``--json``, a command that returns one thing or a short list writes one JSON document.  A
command whose output can have any length (tasks, the audit, a tail) writes NDJSON, one document per
line.

Only terminals get colours, bold type and progress bars, and NO_COLOR is honoured.  Control
characters in data are escaped.
"""

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headrace.cli.commands import SHOWN
from headrace.cli.session import CliSession
from headrace.domain.errors import FieldError, HeadraceError
from headrace.domain.texts import escape_unseen, json_escape
from headrace.wire.base import without_halves

if TYPE_CHECKING:
    from headrace.client.calls import CallStep, SteppedCall
    from headrace.wire.tasks import BulkResult, Count, Enqueued, TaskError, Undoable

S = TypeVar("S", bound="CallStep")

Column: TypeAlias = str | Callable[[Any], object]

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


def made_fields(made: "Enqueued") -> dict[str, Any]:
    """Return the result of an enqueue without the payload of its task."""
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
    """Write JSON; on a terminal, escape control and invisible characters."""
    click.echo(escape_unseen(text, json_escape) if sys.stdout.isatty() else text)


def answer(session: CliSession, value: object, show: Callable[[], None]) -> None:
    """Write *value* as JSON with --json, else call *show*."""
    if session.json:
        document(value)
    else:
        show()


def done(session: CliSession, note: str, value: object) -> None:
    """Write a *note* on stderr, and *value* as JSON with --json."""
    session.note(note)
    if session.json:
        document(value)


# -------------------------------------------------------------------------------------- people


def how_long(undo_for: float) -> str:
    """Return the end of a question about a deletion: whether it can be undone."""
    if not undo_for:
        return ", and that cannot be undone"
    return f"; for {span(undo_for)} an undo can bring them back"


def undo_note(undo: "Undoable") -> str:
    """Return the line that names the command which brings deleted tasks back."""
    return f"Until {when(undo.until)} `headrace undo {undo.id}` brings them back."


def why_not(result: "BulkResult") -> str:
    """Return why a task was skipped, in words; empty if it was not."""
    from headrace.domain.operate import SAID  # noqa: PLC0415 (not for --help)

    if result.detail is not None:
        return SAID.get(result.detail, result.detail)
    return "it does not exist" if result.outcome == "NOT_FOUND" else ""


def console(stream: TextIO | None = None) -> Console:
    """Return a console on stdout or *stream*; lines have any length unless it is a terminal."""
    file = stream or sys.stdout
    width = None if file.isatty() else _ANY_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def cell(value: object, style: str = "") -> Text:
    """Return *value* as a table cell: a dash for None, and no control characters."""
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
    """Return an instant in UTC and whole seconds, or a dash for None."""
    return "-" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def span(seconds: float | None) -> str:
    """Return a duration in its largest sensible unit."""
    if seconds is None:
        return "-"
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.1f}".removesuffix(".0") + f" {unit}"
    digits = 1 if seconds < _SHORT else 0
    return f"{seconds:.{digits}f}".removesuffix(".0") + " s"


def grid(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return a table with *columns*; those in *right* are aligned right."""
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


def rows(columns: Sequence[str], of: Iterable[Sequence[object]]) -> None:
    """Print a table, or one line on stderr if it has no rows.  Numbers are aligned right.

    A row is one line, because a name with a line break would look like two rows.
    """
    shown = list(of)
    if not shown:
        click.echo("None found.", err=True)
        return
    right = [
        name
        for name, cells in zip(columns, zip(*shown, strict=True), strict=True)
        if any(isinstance(one, int) for one in cells)
        and all(one is None or isinstance(one, int | float) for one in cells)
    ]
    made = grid(*columns, right=right)
    for row in shown:
        made.add_row(*map(_cell_of_one_line, row))
    write(made)


def table(columns: Mapping[str, Column], of: Iterable[object]) -> None:
    """Print objects as a table: each column is an attribute, or a function of an object."""
    rows(list(columns), [[_value(one, column) for column in columns.values()] for one in of])


def _value(of: object, column: Column) -> object:
    return attrgetter(column)(of) if isinstance(column, str) else column(of)


def listing(
    session: CliSession,
    found: Iterable[object],
    columns: Mapping[str, Column],
    limit: int | None,
    *,
    one_document: bool = False,
) -> None:
    """Write a list of any length: NDJSON or *one_document* with --json, else its first rows."""
    if session.json and one_document:
        document(list(islice(found, limit)))
    elif session.json:
        for one in islice(found, limit):
            line(one)
    else:
        most, left = limit or SHOWN, iter(found)
        table(columns, islice(left, most))
        if next(left, None) is not None:
            session.note(f"There are more: --limit shows more than {most}, --json all.")


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(Text(escape_unseen(name)), cell(value))
    write(made)


def write(made: Table) -> None:
    """Print it; without trailing spaces unless stdout is a terminal."""
    out = console()
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as drawn:
        out.print(made)
    for row in drawn.get().splitlines():
        click.echo(row.rstrip())


def error_line(error: "TaskError") -> str:
    """Return the error of one attempt in one line."""
    shown = ": ".join(part for part in (error.type, error.message) if part)
    return shown or error.kind.replace("_", " ")


def pretty(raw: bytes) -> str:
    """Return JSON text with line breaks and indents; unchanged if it is nested too deeply."""
    mark = secrets.token_hex(8).encode()
    try:
        set_out = msgspec.json.format(without_halves(raw, mark), indent=2)
    except (msgspec.DecodeError, RecursionError):
        set_out = raw
    return set_out.replace(mark, rb"\u").decode(errors="replace")


def progress(session: CliSession) -> Progress:
    """Return a progress bar on stderr; it is hidden unless that is a terminal."""
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


def follow(session: CliSession, call: "SteppedCall[S]", text: str, number: Callable[[S], int]) -> S:
    """Send *call* step by step with a progress bar of *number*, and return its last answer."""
    from headrace.client.operations import so_far  # noqa: PLC0415 (not for --help)

    with progress(session) as bar:
        seen = bar.add_task(text, total=None)
        for found in session.client.stream(so_far(call)):
            bar.update(seen, completed=number(found))
    return found


def count_of(session: CliSession, queue: str, where: Mapping[str, Any]) -> "Count":
    """Count the tasks of *queue* that match, in as many calls as it takes, with a progress bar."""
    from headrace.client.calls.many import count_tasks  # noqa: PLC0415 (not for --help)

    return follow(session, count_tasks(queue, **where), "Counted", lambda found: found.count)


def problem(session: CliSession, error: Exception, text: str, code: str) -> str:
    """Return the text for stderr about an error: one line, or a JSON document with --json.

    *code* is used for an error that the command itself found.
    """
    if not session.json:
        return f"error: {escape_unseen(text)}"
    answer = to_json({"error": problem_fields(error, text, code)})
    return escape_unseen(answer, json_escape) if sys.stderr.isatty() else answer


def problem_fields(error: Exception, text: str, code: str = "failed") -> dict[str, Any]:
    """Return the *error* for programs, with its *text* for people."""
    if isinstance(error, HeadraceError):
        return {
            "code": error.answered_code or error.code,
            "detail": text,
            "errors": error.errors,
            "request_id": error.request_id,
        }
    return {"code": code, "detail": text, "errors": _wrong_param(error), "request_id": None}


def _wrong_param(error: Exception) -> list[FieldError]:
    """Return the wrong option or argument of a command line, by its name there."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return []
    name = error.param.opts[-1] if isinstance(error.param, click.Option) else error.param.name
    missing = isinstance(error, click.MissingParameter)
    return [FieldError(name or "", "is missing" if missing else error.message)]
