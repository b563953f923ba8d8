"""`headrace action`: actions on many tasks that the service carries out."""

from collections import Counter
from typing import Final

import click

from headrace.cli.commands import CliGroup, limit_option, query_option, queue_names, yes_option
from headrace.cli.output import Column, answer, done, facts, listing
from headrace.cli.session import CliSession, Exit
from headrace.domain.operate import SAID
from headrace.domain.texts import amount
from headrace.wire.actions import ActionSeen

_WORDS: Final = {
    "LOOKING": "looking for its tasks",
    "RUNNING": "running",
    "PAUSED": "paused",
    "DONE": "done",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
}


_COLUMNS: Final[dict[str, Column]] = {
    "Id": "id",
    "Action": "action",
    "Queues": "queues",
    "Status": lambda one: _WORDS.get(one.status, one.status),
    "Done": "done",
    "Of": "matched",
    "Changed": "changed",
    "By": "actor",
    "Begun": "started_at",
    "Reason": "reason",
}


@click.group("action", cls=CliGroup, example="headrace action list --queue mail")
def action_command() -> None:
    """Show, pause, resume or cancel actions on many tasks.

    `headrace task restart --queue mail --state DEAD --background` begins one.
    """


@action_command.command("list", example="headrace action list --queue mail")
@click.option(
    "--queue", metavar="QUEUE", shell_complete=queue_names, help="Only actions on this queue."
)
@query_option("status:running actor:ada")
@limit_option
@click.pass_obj
def list_actions(
    session: CliSession, queue: str | None, query: str | None, limit: int | None
) -> None:
    """List the actions of the last 30 days, latest first."""
    listing(session, session.client.list_actions(queue=queue, query=query), _COLUMNS, limit)


@action_command.command("show", example="headrace action show act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> Exit:
    """Show an action: progress, who began it and why.  Ends with 1 if it failed."""
    found = session.client.get_action(id)
    answer(session, found, lambda: _show(found))
    return Exit.FAILED if found.status == "FAILED" else Exit.DONE


@action_command.command("pause", example="headrace action pause act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def pause(session: CliSession, id: str) -> None:
    """Pause an action, after the up to 250 tasks that it is changing."""
    done(session, f"Action {id} is paused.", session.client.pause_action(id))


@action_command.command("resume", example="headrace action resume act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def resume(session: CliSession, id: str) -> None:
    """Resume a paused action."""
    done(session, f"Action {id} is resumed.", session.client.resume_action(id))


@action_command.command("cancel", example="headrace action cancel act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@yes_option
@click.pass_obj
def cancel(session: CliSession, id: str, *, yes: bool) -> None:
    """Cancel an action; tasks that it has changed stay changed."""
    session.ask(f"Action {id} will be cancelled; that cannot be undone.", yes=yes)
    done(session, f"Action {id} is cancelled.", session.client.cancel_action(id))


def begun(session: CliSession, one: ActionSeen) -> Exit:
    """Print the command that shows the progress of a new action."""
    done(session, f"Begun: `headrace action show {one.id}` shows the progress.", one)
    return Exit.DONE


def _show(one: ActionSeen) -> None:
    left = Counter[str]()
    for reason, number in one.left.items():
        left[SAID.get(reason, reason)] += number
    facts(
        [
            ("id", one.id),
            ("action", one.action),
            ("queues", one.queues),
            ("filter", one.filter),
            *([("to queue", one.to_queue)] if one.to_queue else []),
            ("status", _WORDS.get(one.status, one.status)),
            ("matched", one.matched if one.matched is not None else "not known yet"),
            ("done", one.done),
            ("changed", one.changed),
            *((f"skipped: {reason}", amount(number, "task")) for reason, number in left.items()),
            ("by", one.actor),
            ("reason", one.reason),
            ("begun", one.started_at),
            *([("ended", one.ended_at)] if one.ended_at else []),
            *([("trouble", one.trouble)] if one.trouble else []),
            *((f"undo {queue}", f"headrace undo {id}") for queue, id in one.undos.items()),
        ]
    )
