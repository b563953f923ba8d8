"""The base of every command: help with an example, and options that every command takes.

The function of a command gets the session and returns an exit code, or None for 0.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from headrace.cli import params
from headrace.cli.session import CliSession
from headrace.client.options import nearest
from headrace.domain.settings import Kind, Setting
from headrace.domain.times import duration_text

_COMPLETE_WITHIN: Final = 2.0  # seconds that completion may take


class Lazy(NamedTuple):
    """A command that is imported when it is used: its module, attribute and help."""

    module: str
    attribute: str
    help: str


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Store a global option in the session; the last one wins."""
    session = ctx.ensure_object(CliSession)
    if param.name and ctx.get_parameter_source(param.name) is not _DEFAULT:
        setattr(session, param.name, value)


_DEFAULT: Final = click.core.ParameterSource.DEFAULT


def _global(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_remember, **attributes)


def _globals() -> list[click.Option]:
    return [
        _global("--url", metavar="URL", help="Address of the service; else HEADRACE_URL."),
        _global(
            "--key",
            metavar="KEY",
            help="API key; HEADRACE_KEY is safer, because others can see a command line.",
        ),
        _global("--key-file", metavar="FILE", help="File with the key; - is stdin."),
        _global(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            default=30.0,
            help="Timeout of one call: 30.",
        ),
        _global("--json", is_flag=True, help="Print JSON."),
        _global("--quiet", "-q", is_flag=True, help="No notes and no progress bars."),
        _global("--debug", is_flag=True, help="Show the traceback of an error."),
    ]


class CliCommand(click.Command):
    """A command.  Its help has three parts: text with examples, its options, common options."""

    def __init__(self, *args: Any, example: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example
        self.everywhere = _globals()
        self.context_settings = {"help_option_names": ["-h", "--help"], **self.context_settings}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            options = [each for one in self.get_params(ctx) for each in one.opts]
            near = nearest(name, [each.lstrip("-").replace("-", "_") for each in options])
            if not near:
                raise
            meant = " or ".join(f"--{one.replace('_', '-')}" for one in near)
            message = f"{error.message} Did you mean {meant}?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self.everywhere]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example" if "\n" not in self.example else "Examples"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        own = [one for one in self.get_params(ctx) if one not in self.everywhere]
        for title, some in (("Options", own), ("Options of every command", self.everywhere)):
            rows = [row for param in some if (row := param.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class CliGroup(CliCommand, click.Group):
    """A group of commands."""

    command_class = CliCommand
    group_class = type

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy] | None = None,
        **attributes: Any,
    ) -> None:
        """Create a group with *lazy* commands."""
        super().__init__(*args, **attributes)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # click does not know the lazy commands, so it cannot suggest them.
            raise click.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, self.lazy[name].help if name in self.lazy else _short_help(self, ctx, name))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _short_help(group: click.Group, ctx: click.Context, name: str) -> str:
    command = group.get_command(ctx, name)
    return command.get_short_help_str(limit=100) if command else ""


# ---------------------------------------------------------------------------- shared options


def queue_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a queue; nothing on an error."""
    del param
    session = ctx.ensure_object(CliSession)
    session.timeout, session.retries = _COMPLETE_WITHIN, 0
    try:
        return [CompletionItem(queue.name) for queue in session.client.list_queues(incomplete)]
    except Exception:  # noqa: BLE001 (completion must never fail)
        return []


queue_argument: Final = click.argument("queue", shell_complete=queue_names)
queue_option: Final = click.option(
    "--queue", metavar="QUEUE", shell_complete=queue_names, help="The queue of the tasks."
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*decorators: Decorator) -> Decorator:
    """Return several decorators of click as one; the first is the first in the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def setting_option(setting: Setting) -> Decorator:
    """Return the option for a setting that is a text, a whole number or a duration."""
    name, default = f"--{setting.about.short.replace('_', '-')}", setting.default
    if setting.kind is Kind.SECONDS:
        default = duration_text(default)
    help_ = f"{setting.hint} Default: {default}." if default else setting.hint
    if setting.kind is Kind.SECONDS:
        return click.option(name, **params.TIME, help=help_)
    if setting.kind is Kind.WHOLE:
        return click.option(name, type=int, metavar="N", help=help_)
    return click.option(name, metavar="TEXT", help=help_)


def exactly_one(given: Mapping[str, object]) -> None:
    """Raise UsageError unless exactly one of these options was given, by their names."""
    at_most_one(given)
    if not any(map(is_given, given.values())):
        raise click.UsageError(f"give one of {', '.join(given)}")


def at_most_one(given: Mapping[str, object]) -> None:
    """Raise UsageError if several of these options were given, by their names."""
    several = [name for name, value in given.items() if is_given(value)]
    if len(several) > 1:
        raise click.UsageError(f"give only one of {', '.join(several)}")


def needs(given: Mapping[str, object], name: str, other: str) -> None:
    """Raise UsageError if the option *name* was given without *other*."""
    if is_given(given[name]) and not is_given(given[other]):
        raise click.UsageError(f"{name} needs {other}")


def is_given(value: object) -> bool:
    """Whether an option was given, by its value."""
    return value is not None and value is not False and value != ()


yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


undo_option: Final = click.option(
    "--undo-for",
    **params.TIME,
    default="1d",
    show_default=True,
    help="How long `headrace undo` can bring them back; 0: not at all.",
)


reason_option: Final = click.option(
    "--reason", metavar="TEXT", help="The reason, which the audit keeps."
)


def dry_run_option(text: str) -> Decorator:
    """Return the option --dry-run with *text* as its help."""
    return click.option("--dry-run", is_flag=True, help=text)


def tag_option(text: str) -> Decorator:
    """Return the option --tag; its value is one mapping of all tags, or None."""
    return click.option(
        "--tag",
        "tags",
        type=params.tag,
        multiple=True,
        metavar="NAME=VALUE",
        help=text,
        callback=lambda _ctx, _param, pairs: params.tags_of(pairs),
    )


def query_option(example: str) -> Decorator:
    """Return the option --query with an *example*."""
    help_ = f"A query as in the console: '{example}'."
    return click.option("--query", metavar="TEXT", help=help_)


SHOWN: Final = 50
"""Rows of a table without --limit."""

limit_option: Final = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most N; default: {SHOWN} in a table, all with --json.",
)


def split(texts: Sequence[str]) -> list[str]:
    """Return values that were given with commas or several times as one list."""
    return [part for text in texts for part in text.split(",") if part]
