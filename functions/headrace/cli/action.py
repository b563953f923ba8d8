"""`headrace action`: what the service does to many tasks, begun by `--background`.

``begun`` is what the verbs of `headrace task` say of one.
"""

from collections import Counter
from itertools import islice
from typing import Final

import click

from headrace.cli.commands import SHOWN, CliGroup, limit_option, queue_names, yes_option
from headrace.cli.output import answer, done, facts, line, many, rows
from headrace.cli.session import CliSession, Exit
from headrace.domain.operate import SAID
from headrace.wire.actions import ActionSeen

_WORDS: Final = {
    "LOOKING": "looking for its tasks",
    "RUNNING": "going on",
    "PAUSED": "paused",
    "DONE": "done",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
}


@click.group("action", cls=CliGroup, example="headrace action list --queue mail")
def action_command() -> None:
    """See what the service does to many tasks; pause, resume or cancel it.

    `headrace task restart --queue mail --state DEAD --background` begins one.
    """


@action_command.command("list", example="headrace action list --queue mail")
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Of this queue.")
@click.option("--query", metavar="TEXT", help="As in the console: 'status:running actor:ada'.")
@limit_option
@click.pass_obj
def list_actions(
    session: CliSession, queue: str | None, query: str | None, limit: int | None
) -> None:
    """List the actions of the last 30 days, the latest first."""
    every = session.client.list_actions(queue=queue, query=query)
    if session.json:
        for one in islice(every, limit):
            line(one)
        return
    most = limit or SHOWN
    rows(
        ("Id", "What", "Queues", "Status", "Done", "Of", "Changed", "Who", "Begun", "Why"),
        (
            (
                *(one.id, one.action, one.queues, _WORDS.get(one.status, one.status)),
                *(one.done, one.matched, one.changed, one.actor, one.started_at, one.reason),
            )
            for one in islice(every, most)
        ),
        right=("Done", "Of", "Changed"),
    )
    if next(every, None) is not None:
        session.note(f"There are more: --limit shows more than {most}, --json all.")


@action_command.command("show", example="headrace action show act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> Exit:
    """Show how far an action is, who began it and why.  Ends with 1 for one that failed."""
    found = session.client.get_action(id)
    answer(session, found, lambda: _show(found))
    return Exit.FAILED if found.status == "FAILED" else Exit.DONE


@action_command.command("pause", example="headrace action pause act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def pause(session: CliSession, id: str) -> None:
    """Let an action rest; what it is at, up to 250 tasks, is finished."""
    done(session, f"Action {id} rests.", session.client.pause_action(id))


@action_command.command("resume", example="headrace action resume act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@click.pass_obj
def resume(session: CliSession, id: str) -> None:
    """Let an action go on that rests."""
    done(session, f"Action {id} goes on.", session.client.resume_action(id))


@action_command.command("cancel", example="headrace action cancel act_7ysx3gkqzr4n8w2m5v9b6t1d0c")
@click.argument("id")
@yes_option
@click.pass_obj
def cancel(session: CliSession, id: str, *, yes: bool) -> None:
    """End an action where it is; what is done stays done."""
    session.ask(f"Action {id} will end where it is; that cannot be undone.", yes=yes)
    done(session, f"Action {id} is cancelled.", session.client.cancel_action(id))


def begun(session: CliSession, one: ActionSeen) -> Exit:
    """Say that an action is begun, and how to see how far it is."""
    done(session, f"Begun: `headrace action show {one.id}` says how far it is.", one)
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
            *((f"left alone: {reason}", many(number, "task")) for reason, number in left.items()),
            ("by", one.actor),
            ("why", one.reason),
            ("begun", one.started_at),
            *([("ended", one.ended_at)] if one.ended_at else []),
            *([("trouble", one.trouble)] if one.trouble else []),
            *((f"undo {queue}", f"headrace undo {id}") for queue, id in one.undos.items()),
        ]
    )
