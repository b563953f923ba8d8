"""`headrace enqueue`: one task, or one for each line of a file."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click

from headrace.cli import params
from headrace.cli.commands import (
    CliCommand,
    Decorator,
    at_most_one,
    is_given,
    needs,
    options,
    queue_argument,
    tag_option,
)
from headrace.cli.lines import (
    BadLine,
    Defaults,
    LineReader,
    Result,
    call_of,
    enqueue_lines,
    read_lines,
)
from headrace.cli.output import document, line, made_fields, progress
from headrace.cli.params import INSTANT, PRIORITY, TIME
from headrace.cli.session import CliSession, Exit
from headrace.client.sending import NewTask, NewTaskFields
from headrace.client.settings import utc_now
from headrace.domain.errors import HeadraceError
from headrace.domain.ids import new_task_id
from headrace.domain.task import DedupeUntil, Overwritable
from headrace.domain.task_fields import SetBy, texts
from headrace.domain.texts import escape_unseen
from headrace.wire.tasks import Enqueued


def task_options(request: SetBy) -> Decorator:
    """Return the options of a task that *request* may set, each with the API's name."""
    return options(
        tag_option("A tag of the task; repeatable."),
        *(
            click.option(
                f"--{field.name.replace('_', '-')}",
                metavar="TEXT",
                help=f"{field.help[0].upper()}{field.help[1:]}.",
            )
            for field in texts(request)
        ),
        click.option(
            "--dedupe-until",
            type=click.Choice([one.value for one in DedupeUntil]),
            help="Release the dedupe key when the task starts, or when it ends (default).",
        ),
        click.option(
            "--lease-seconds",
            "keepalive_timeout_in_seconds",
            **TIME,
            help="How long a lease of the task lasts.",
        ),
        click.option(
            "--max-retries",
            "retry_strategy",
            type=int,
            metavar="N",
            callback=lambda _, __, number: None if number is None else {"max_retries": number},
            help="Retries, instead of the queue's.",
        ),
        click.option("--priority", **PRIORITY, help="In a queue with priorities."),
    )


_task_options = options(
    click.option("--delay", "delay_in_seconds", **TIME, help="Deliver after this time."),
    click.option(
        "--scheduled-at", **INSTANT, help="Deliver from then on: 2026-11-21T08:00:00Z, or +1h."
    ),
    click.option("--expires-at", **INSTANT, help="Do not deliver after this instant."),
    click.option("--id", metavar="ID", help="Your own id; the same id again changes nothing."),
    task_options(SetBy.ENQUEUE),
    click.option(
        "--unique-for",
        "unique_for_seconds",
        **TIME,
        help="One task in each window of this length under the --dedupe-key, even if it has ended.",
    ),
    click.option(
        "--overwrite",
        "overwrite_on_duplicate",
        multiple=True,
        type=click.Choice(get_args(Overwritable)),
        help="Fields that a duplicate replaces in the waiting task.",
    ),
)


@click.command(
    "enqueue",
    cls=CliCommand,
    example='headrace enqueue mail \'{"to": "ada@example.com"}\' --delay 10m --tag team=sales\n'
    'headrace enqueue mail --task mail.send \'{"to": "ada@example.com"}\'\n'
    "jq -c '.[]' all.json | headrace enqueue mail --file -",
)
@queue_argument
@click.argument("payload", required=False)
@click.option(
    "--task",
    "function",
    metavar="NAME",
    help='Call this function, for example mail.send; PAYLOAD is its arguments, {"to": …}.',
)
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Upload this file as the payload of one task, up to 1 GiB.",
)
@click.option(
    "--file",
    type=params.InputFile("rb"),
    metavar="FILE",
    help="NDJSON with a payload on each line; - is stdin.",
)
@click.option("--tasks", is_flag=True, help='Lines are whole tasks: {"payload": …, "id": …}.')
@click.option("--skip-bad", is_flag=True, help="Skip lines that cannot be a task.")
@click.option(
    "--from-line", type=click.IntRange(min=1), default=1, metavar="N", help="Start at this line."
)
@click.option(
    "--run",
    metavar="NAME",
    help="Prefix of the ids of a file's tasks; the same file with the same name enqueues no line "
    "twice.",
)
@click.option("--dry-run", is_flag=True, help="Check every line; send nothing.")
@_task_options
@click.pass_obj
def enqueue_command(session: CliSession, /, queue: str, payload: str | None, **given: Any) -> Exit:
    """Put tasks into a queue.

    PAYLOAD is any JSON; - reads it from stdin.  With --task it is the arguments of an app's
    function.  With --file, each line is a payload, and the other options are defaults for every
    line.  --payload-file uploads a large payload.
    """
    _check(queue, payload, given)
    defaults = _defaults(given)
    if given["file"] is not None:
        return _file(session, queue, defaults, given)
    if given["payload_file"] is not None:
        fields = {**defaults, **({} if given["id"] is None else {"id": given["id"]})}
        return _one(session, _uploaded(session, queue, given["payload_file"], fields))
    value = _value(payload, given["function"])
    new = NewTask(payload=value, id=given["id"], **defaults)
    return _one(session, *session.client.enqueue_many(queue, [new], errors="return"))


def _check(queue: str, payload: str | None, given: dict[str, Any]) -> None:
    """Raise UsageError for options that exclude or need each other."""
    if queue.startswith(("{", "[")):
        raise click.UsageError("give the QUEUE before the PAYLOAD")
    ctx = click.get_current_context()
    options = {one.opts[0]: given.get(one.name or "") for one in ctx.command.params}
    options |= {"PAYLOAD": payload}
    for excluding in (
        *(("--delay", "--scheduled-at"), ("--id", "--unique-for"), ("--task", "--tasks")),
        *(("PAYLOAD", "--file", "--payload-file"), ("--payload-file", "--task")),
        ("--file", "--id"),  # lines of --tasks have their own ids
    ):
        at_most_one({name: options[name] for name in excluding})
    for name in ("--tasks", "--skip-bad", "--run", "--dry-run"):
        needs(options, name, "--file")
    if not given["tasks"]:
        for name in ("--overwrite", "--dedupe-until", "--unique-for"):
            needs(options, name, "--dedupe-key")
    if not any(
        is_given(options[name]) for name in ("PAYLOAD", "--file", "--payload-file", "--task")
    ):
        raise click.UsageError("give a PAYLOAD, - for stdin, --payload-file, or --file")


def _uploaded(session: CliSession, queue: str, path: Path, fields: Defaults) -> Enqueued:
    """Upload the file at *path* and enqueue a task with it."""
    ref = session.client.upload(queue, path, id=fields.get("id"))
    new = NewTask(payload_ref=ref, **fields)
    (made,) = session.client.enqueue_many(queue, [new], errors="return")
    return made


def _value(payload: str | None, function: str | None) -> Any:
    """Return the payload of one task: a call of *function*, if it is given."""
    value = {} if payload is None else params.json_of("PAYLOAD", payload)
    if function is None:
        return value
    try:
        return call_of(function, value)
    except BadLine as bad:
        raise click.BadParameter(str(bad), param_hint="PAYLOAD") from None


def _defaults(given: dict[str, Any]) -> Defaults:
    """Return the given fields of a task but its id."""
    names = NewTaskFields.__annotations__.keys() - {"id"}
    return {name: given[name] for name in names & given.keys() if is_given(given[name])}


def _one(session: CliSession, made: Enqueued) -> Exit:
    if session.json:
        document(made_fields(made))
    elif made.id is not None and made.outcome != "INVALID":
        click.echo(made.id)
    why = f": {made.detail}" if made.detail else ""
    if made.outcome == "INVALID":
        click.echo(escape_unseen(f"error: {made.outcome}{why}"), err=True)
        return Exit.FAILED
    if made.outcome != "CREATED":
        where = f", {made.queue}" if made.task is None and made.queue else ""
        session.note(f"{made.outcome}{why}{where}")
    return Exit.DONE


def _file(session: CliSession, queue: str, defaults: Defaults, given: dict[str, Any]) -> Exit:
    counts: Counter[str] = Counter()
    last = 0
    run = given["run"] or new_task_id(utc_now())
    reader = LineReader(defaults, given["tasks"], given["function"], run)
    client = None if given["dry_run"] else session.client
    try:
        with progress(session) as bar:
            read = bar.add_task(f"Into {queue}, bytes", total=_size(given["file"]))
            lines = _numbered(
                given["file"], given["from_line"], lambda seen: bar.update(read, completed=seen)
            )
            for number, result in enqueue_lines(
                client, queue, lines, reader, skip_bad=given["skip_bad"]
            ):
                last = number
                counts[_outcome(result)] += 1
                _line(session, number, result)
    except (HeadraceError, KeyboardInterrupt):
        session.note(f"Up to line {last}: {_summary(counts)}, and perhaps a few more.")
        session.note(f"Run it again with --run {run} to continue; no line is enqueued twice.")
        raise
    session.note(f"{'Nothing was sent: ' if given['dry_run'] else ''}{_summary(counts)}.")
    if counts["BAD"] and not given["skip_bad"]:
        session.note(
            f"Stopped at line {last}: continue with --run {run} and --skip-bad or --from-line."
        )
    return Exit.FAILED if counts["BAD"] or counts["INVALID"] else Exit.DONE


def _outcome(result: Result) -> str:
    if isinstance(result, BadLine):
        return "BAD"
    return "fine" if result is None else result.outcome


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common()) or "no lines"


def _line(session: CliSession, number: int, result: Result) -> None:
    if isinstance(result, BadLine):
        click.echo(escape_unseen(f"line {number}: {result}"), err=True)
        if session.json:
            line({"line": number, "outcome": "BAD", "id": None, "detail": str(result)})
    elif result is not None:
        if result.outcome == "INVALID":
            click.echo(escape_unseen(f"line {number}: INVALID: {result.detail}"), err=True)
        if session.json:
            named = ("outcome", "id", "queue", "detail")
            fields = {name: getattr(result, name) for name in named}
            line({"line": number, **fields})


def _size(stream: BinaryIO) -> int | None:
    path = Path(str(getattr(stream, "name", "")))
    return path.stat().st_size if path.is_file() else None


def _numbered(
    stream: BinaryIO, first: int, advance: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank from line *first* on, and report the bytes read."""
    seen = 0
    for number, text in enumerate(read_lines(stream), start=1):
        seen += len(text)
        advance(seen)
        if number >= first and text.strip():
            yield number, text
