"""Pages of the command `headrace`, from the commands themselves."""

from collections.abc import Iterator
from functools import cache
from typing import Final

import click

from headrace.cli.commands import CliCommand, CliGroup
from headrace.cli.main import main
from infra.reference import cell, code, table

_NOTE: Final = "<!-- Written from the help of the commands when the site is built. -->\n\n"

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
        for path, one in _commands()
        if path[0] in names and not isinstance(one, click.Group)
    ]
    return {"commands": table(("command", "what it does"), rows)}


def pages() -> dict[str, str]:
    """Return a page for each group of commands."""
    assert isinstance(main, CliGroup)  # noqa: S101
    with click.Context(main) as context:
        missing = set(main.list_commands(context)) - {n for _, ns in _PAGES.values() for n in ns}
    if missing:
        raise ValueError(f"no page has the commands {missing}")
    return {
        f"cli/{page}.md": f"# {title}\n\n{_NOTE}"
        "Every command also takes [the common options](../cli.md#common-options).\n\n"
        + "\n\n".join(
            _command(path, one)
            for path, one in _commands()
            if path[0] in names and not isinstance(one, click.Group)
        )
        + "\n"
        for page, (title, names) in _PAGES.items()
    }


@cache
def _commands() -> tuple[tuple[tuple[str, ...], click.Command], ...]:
    assert isinstance(main, CliGroup)  # noqa: S101
    return tuple(_walk(main, ()))


def _walk(
    group: CliGroup, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None:
                yield (*path, name), command
                if isinstance(command, CliGroup):
                    yield from _walk(command, (*path, name))


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
