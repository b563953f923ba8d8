"""Pages of the command `headrace`, from the commands themselves."""

from collections.abc import Iterator
from functools import cache
from typing import Final

import click

from headrace.cli.commands import CliCommand, CliGroup
from headrace.cli.main import main
from infra.reference import cell, code, table

_NOTE: Final = "<!-- Written from the help of the commands when the site is built. -->"

_PAGES: Final = {
    "services": ("Services and files", ("run", "smoke", "doctor", "timers", "backup", "api")),
    "queues": ("Queues", ("queue", "stats", "schedule", "sync")),
    "tasks": ("Tasks", ("enqueue", "task")),
    "actions": ("Actions and batches", ("action", "undo", "batch")),
    "workers": ("Workers and outbox", ("work", "worker", "outbox")),
    "access": ("Keys and audit", ("key", "audit", "completion")),
    "spark": ("Spark and the lake", ("station", "lake")),
}


def parts() -> dict[str, str]:
    """Return the list of all commands."""
    rows = [
        (f"[{code(cell(_title(path, one)))}](cli/{page}.md#{_anchor(path, one)})", _short(one))
        for page, (_, names) in _PAGES.items()
        for path, one in _commands(names)
    ]
    return {"commands": table(("command", "what it does"), rows)}


def pages() -> dict[str, str]:
    """Return a page for each group of commands."""
    missing = {path[0] for path, _ in _commands()} - {n for _, ns in _PAGES.values() for n in ns}
    if missing:
        raise ValueError(f"no page has the commands {missing}")
    common = "Every command also takes [the common options](../cli.md#common-options)."
    return {
        f"cli/{page}.md": "\n\n".join(
            [f"# {title}", _NOTE, common, *(_command(path, one) for path, one in _commands(names))]
        )
        for page, (title, names) in _PAGES.items()
    }


@cache
def _commands(names: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return each command that is not a group, by its words; with *names*, those that begin so."""
    return [(path, one) for path, one in _walk(main, ()) if not names or path[0] in names]


def _walk(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, CliGroup):
        yield path, command
        return
    with click.Context(command) as context:
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from _walk(inner, (*path, name))


def _title(path: tuple[str, ...], command: click.Command) -> str:
    with click.Context(command) as context:
        usage = [word for word in command.collect_usage_pieces(context) if word != "[OPTIONS]"]
    return " ".join(["headrace", *path, *usage])


def _anchor(path: tuple[str, ...], command: click.Command) -> str:
    kept = "".join(c for c in _title(path, command).lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _short(command: click.Command) -> str:
    return cell((command.help or "").partition("\n\n")[0].removesuffix("."))


def _command(path: tuple[str, ...], command: click.Command) -> str:
    blocks = [f"## {code(_title(path, command))}"]
    blocks += [cell(text) for text in (command.help or "").split("\n\n")]
    rows = []
    with click.Context(command) as context:
        everywhere = command.everywhere if isinstance(command, CliCommand) else []
        for param in command.get_params(context):
            record = param.get_help_record(context)
            if record and record[1] and param not in everywhere and param.name != "help":
                rows.append((code(cell(record[0])), cell(record[1])))
    if rows:
        blocks.append(table(("option", "meaning"), rows))
    example = command.example if isinstance(command, CliCommand) else ""
    if example:
        blocks.append(f"```sh\n{example.strip()}\n```")
    return "\n\n".join(blocks)
