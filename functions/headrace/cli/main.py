"""`headrace`: manage the service, its queues, tasks, schedules, keys and workers."""

import re
import sys
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from headrace import __version__
from headrace.cli.commands import CliGroup, Lazy
from headrace.cli.session import CliSession, Exit, Failed, exit_of, replace_closed_output
from headrace.domain.errors import HeadraceError, Unauthenticated
from headrace.domain.texts import escape_unseen

_NO_QUEUE: Final = re.compile(r"there is no queue ([\w.-]+)", re.ASCII)
_ELSEWHERE: Final = {
    "work": "workers",
    "worker": "workers",
    "stats": "watching",
    "key": "access",
    "audit": "access",
    "station": "spark",
    "lake": "spark",
    "timers": "run",
    "backup": "run",
    "undo": "bulk",
}
"""Commands whose module has another name."""

COMMANDS: Final = {
    name: Lazy(f"headrace.cli.{_ELSEWHERE.get(name, name)}", f"{name}_command", text)
    for name, text in {
        "run": "Start a service on this machine.",
        "smoke": "Check a deployment by following one task through it.",
        "doctor": "Check key, clock, service and queues, with advice.",
        "queue": "Create, show, edit, pause, purge and delete queues.",
        "enqueue": "Put tasks into a queue.",
        "work": "Start a worker of an app.",
        "task": "Show tasks, and trigger, restart, move, cancel or delete them.",
        "batch": "Show, close, cancel and delete batches and workflows.",
        "undo": "Bring back deleted tasks.",
        "action": "Show, pause, resume or cancel actions on many tasks.",
        "schedule": "Put, show, trigger and delete schedules.",
        "sync": "Bring queue settings and schedules to what an app declares.",
        "stats": "Show counts and rates of queues.",
        "worker": "List workers, and quiet or stop a worker.",
        "key": "Create, list, rotate and revoke keys.",
        "audit": "Read what people changed.",
        "outbox": "Relay tasks from your own database, and inspect them.",
        "timers": "Run the timers of a file.",
        "backup": "Copy a file while it is used.",
        "api": "Send one request to the API.",
        "station": "Start stations of a pipeline on Spark.",
        "lake": "Keep, check and replay the history of all tasks.",
    }.items()
}


_CODES: Final = {
    Exit.FAILED: "failed",
    Exit.USAGE: "invalid_request",
    Exit.NOT_FOUND: "not_found",
    Exit.NOT_ALLOWED: "forbidden",
    Exit.CONFLICT: "conflict",
    Exit.UNAVAILABLE: "unavailable",
    Exit.TIME_OVER: "time_over",
    Exit.INTERRUPTED: "interrupted",
}
"""The code in JSON of an error that the command itself found."""


class Root(CliGroup):
    """The whole command, which turns errors into one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and leave the process with its exit code."""
        replace_closed_output()
        session = extra.setdefault("obj", None) or CliSession()
        extra |= {"obj": session, "standalone_mode": False}
        extra.setdefault("prog_name", "headrace")
        words = [*args, extra.get("args")][0] or sys.argv[1:]
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            if session.debug:
                raise
            if isinstance(error, click.UsageError) and "--json" in words:
                session.json = True  # also if --json comes after the mistake
            code = _explain(session, error)
        finally:
            session.close()
        sys.exit(int(code or Exit.DONE))


def _explain(session: CliSession, error: Exception) -> Exit:
    """Print the error on stderr, and return its exit code."""
    if isinstance(error, click.Abort) and not session.json:
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not session.json:
        click.echo(escape_unseen(error.format_message()), err=True)
        return Exit.USAGE
    code, text = _meaning(session, error)
    # Loaded only now, because it imports rich.
    from headrace.cli.output import problem  # noqa: PLC0415

    click.echo(problem(session, error, text, _CODES[code]), err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None and not session.json:
        click.echo(f"Try `{error.ctx.command_path} --help`.", err=True)
    return code


def _meaning(session: CliSession, error: Exception) -> tuple[Exit, str]:
    match error:
        case click.Abort():
            return Exit.INTERRUPTED, "interrupted"
        case click.ClickException():
            code = Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
            return code, error.format_message()
        case HeadraceError():
            return exit_of(error), _refused(session, error)
        case Failed():
            return error.code, str(error)
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return Exit.FAILED, f"{where}{error.strerror or error}"
        case _:
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            return Exit.FAILED, f"unexpected {text}; --debug shows the traceback"


def _refused(session: CliSession, error: HeadraceError) -> str:
    """Return the detail of *error*, its fields, and its request id."""
    detail = session.explain(error)
    if detail != error.detail:
        return f"{detail}: is it running? {session.named_by()}"
    if missing := _NO_QUEUE.fullmatch(error.detail):
        near = _near_queue(session, missing[1])
        meant = f"did you mean {near}? Else create" if near else "create"
        return f"{error.detail}: {meant} it with `headrace queue create {missing[1]}`"
    more = [f"{one.field} {one.message}" for one in error.errors if one.message not in error.detail]
    request_id = getattr(error, "request_id", None)
    if request_id and error.status >= HeadraceError.status:
        more.append(f"request {request_id}")
    if isinstance(error, Unauthenticated):
        more.append(session.key_named_by())
    return "; ".join([error.detail, *more])


def _near_queue(session: CliSession, name: str) -> str | None:
    """Return the name of a queue that is similar to *name*, if the key may list queues."""
    from difflib import get_close_matches  # noqa: PLC0415 (not for --help)

    try:
        names = [queue.name for queue in session.client.list_queues()]
    except HeadraceError:
        return None
    return next(iter(get_close_matches(name, names, n=1)), None)


@click.group(
    cls=Root,
    lazy=COMMANDS,
    example="headrace run\nheadrace queue create mail\n"
    'headrace enqueue mail \'{"to": "ada@example.com"}\'\nheadrace task list mail',
)
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def main() -> None:
    """Work with Headrace, a durable task queue.

    HEADRACE_URL and HEADRACE_KEY name the service and the key; `headrace run` starts a service here
    and prints both.  Add --help to a command for its options.
    """


@main.command(
    "completion",
    example='eval "$(headrace completion bash)"                 # in ~/.bashrc or ~/.zshrc\n'
    "headrace completion fish | source                    # in ~/.config/fish/config.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(f"click has no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE")
    # Not source(), which starts a bash to check its version.
    click.echo(script.source_template % script.source_vars())


if __name__ == "__main__":
    main(prog_name="headrace")
