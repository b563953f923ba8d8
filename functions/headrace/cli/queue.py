"""`headrace queue`: create, show, edit, pause, purge and delete queues."""

from typing import Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import (
    CliGroup,
    dry_run_option,
    options,
    query_option,
    queue_argument,
    reason_option,
    setting_option,
    split,
    undo_option,
    yes_option,
)
from headrace.cli.output import (
    Column,
    answer,
    count_of,
    document,
    done,
    follow,
    how_long,
    rows,
    span,
    table,
    undo_note,
)
from headrace.cli.params import TIME
from headrace.cli.queue_text import alerts_of, limits_of, show_queue
from headrace.cli.session import CliSession
from headrace.client.calls.queues import merged, recount_queue
from headrace.client.options import unknown
from headrace.client.queue_fields import QueueFields
from headrace.domain.errors import QueueExists
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.settings import declared_settings
from headrace.domain.task import SHOWN_STATES
from headrace.domain.texts import amount

_STATES: Final = tuple(map(str, SHOWN_STATES))
NOT_SETTINGS: Final = ("name", "created_at", "updated_at", "version", "pause", "stats",
                      "schedules", "schedules_cursor")  # fmt: skip
"""The members of a queue's answer that are not settings."""

_COMMON: Final = tuple(
    one
    for one in declared_settings(QueueSettings)
    if one.path[-1]
    in (
        "description",
        "owner",
        "keepalive_timeout_in_seconds",
        "expires_in_seconds",
        "history_retention_in_seconds",
        "max_retries",
        "max_inflight_tasks",
        "shards",
    )
)
"""The settings that have an option; --set takes the others."""

settings_options: Final = options(
    *map(setting_option, _COMMON),
    click.option(
        "--rate",
        type=params.rate_limit,
        metavar="N/TIME",
        help="Limit deliveries: 50/s, 100/10s, 3000/m; or none.",
    ),
    click.option(
        "--groups",
        type=params.groups,
        metavar="MODE",
        help="Groups of tasks take turns (fair, or fair:acme=4,beta=0.5 with weights) or keep "
        "their order (strict); or none.",
    ),
    click.option("--target-url", metavar="URL", help="Send the tasks there as POST requests."),
    click.option(
        "--on-end",
        type=params.on_end,
        metavar="QUEUE[:STATE,…]",
        help="Notify QUEUE when a task ends, for example hooks:DEAD; or none.",
    ),
    click.option(
        "--set",
        "assigned",
        type=params.assignment,
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting by its name in the API: retry_strategy.jitter=0.2, target=null, "
        "priority.aging_in_seconds=5m.",
    ),
    click.option(
        "--from-file",
        type=params.InputFile(encoding="utf-8"),
        metavar="FILE",
        help="Settings as JSON, as `headrace queue show --json` prints them; - is stdin.",
    ),
)


@click.group(
    "queue",
    cls=CliGroup,
    example="headrace queue create mail --max-retries 3\nheadrace queue list",
)
def queue_command() -> None:
    """Create, show, edit, pause, purge and delete queues."""


@queue_command.command("create", example="headrace queue create mail --max-retries 3 --rate 50/s")
@click.argument("name")
@settings_options
@click.option("--if-missing", is_flag=True, help="Do nothing if the queue exists.")
@click.pass_obj
def create(session: CliSession, /, name: str, *, if_missing: bool, **given: Any) -> None:
    """Create a queue; settings that are not given have their defaults.

    --set takes every setting: headrace queue create mail --set retry_strategy.kind=fixed
    """
    try:
        queue = session.client.create_queue(name, **settings_of(given))
    except QueueExists:
        if not if_missing:
            raise
        done(session, f"Queue {name} exists.", session.client.get_queue(name))
    else:
        done(session, f"Queue {name} is created.", queue)


@queue_command.command("list", example="headrace queue list --prefix ngsi.")
@click.option("--prefix", metavar="TEXT", help="Only names with this prefix.")
@query_option("paused:yes mail")
@click.pass_obj
def list_(session: CliSession, prefix: str | None, query: str | None) -> None:
    """List the queues."""
    queues = list(session.client.list_queues(prefix, query=query))
    columns: dict[str, Column] = {
        "Queue": "name",
        "Lease": lambda one: span(one.keepalive_timeout_in_seconds),
        "Retries": "retry_strategy.max_retries",
        "Limits": limits_of,
        "Shards": "shards",
        # Only a queue that is read alone has its alerts.
        "Alerts": lambda one: (
            one.alerts and ", ".join(alerts_of(session.client.get_queue(one.name)))
        ),
        "Description": "description",
    }
    answer(session, queues, lambda: table(columns, queues))


@queue_command.command("show", example="headrace queue show mail")
@queue_argument
@click.pass_obj
def show(session: CliSession, queue: str) -> None:
    """Show a queue: settings, counts, schedules."""
    found = session.client.get_queue(queue)
    answer(session, found, lambda: show_queue(found))


@queue_command.command("edit", example="headrace queue edit mail --lease-seconds 2m --rate none")
@queue_argument
@settings_options
@dry_run_option("Only show the new settings.")
@click.pass_obj
def edit(session: CliSession, /, queue: str, *, dry_run: bool, **given: Any) -> None:
    """Change some settings of a queue, and keep the others."""
    changes = settings_of(given)
    if not changes:
        raise click.UsageError("nothing to change: give a setting, --set or --from-file")
    if dry_run:
        found = session.client.get_queue(queue)
        shown = merged(found, changes)
        document({name: value for name, value in shown.items() if name not in NOT_SETTINGS})
        return
    edited = session.client.edit_queue(queue, **changes)
    done(session, f"Queue {queue} is changed; version {edited.version}.", edited)


@queue_command.command(
    "pause", example='headrace queue pause mail --for 10m --reason "provider is down"'
)
@queue_argument
@click.option("--for", "resume_in", **TIME, help="Resume after this time.")
@reason_option
@click.pass_obj
def pause(session: CliSession, queue: str, resume_in: float | None, reason: str | None) -> None:
    """Pause deliveries; leases, retries and expiry continue."""
    paused = session.client.pause_queue(queue, resume_in, reason=reason)
    until = f" for {span(resume_in)}" if resume_in is not None else ""
    done(session, f"Queue {queue} is paused{until}.", paused)


@queue_command.command("resume", example="headrace queue resume mail")
@queue_argument
@click.pass_obj
def resume(session: CliSession, queue: str) -> None:
    """Resume deliveries."""
    resumed = session.client.resume_queue(queue)
    done(session, f"Queue {queue} is resumed.", resumed)


@queue_command.command("reindex", example="headrace queue reindex mail")
@queue_argument
@click.pass_obj
def reindex(session: CliSession, queue: str) -> None:
    """Rebuild the index of a queue that has the setting indexed_fields.

    Its lists may lack tasks after the recorder was away for more than six hours.  Workers may
    continue.
    """
    begun = session.client.reindex_queue(queue)
    fields = ", ".join(begun.indexed_fields)
    note = f"Rebuilding the index of {queue} ({fields}); lists read every task until it is done."
    done(session, note, begun)


@queue_command.command("recount", example="headrace queue recount mail")
@queue_argument
@click.pass_obj
def recount(session: CliSession, queue: str) -> None:
    """Recount a queue and correct its counters.

    Use it after the recorder was away for more than six hours. Workers may continue.
    """
    found = follow(session, recount_queue(queue), "Counted", lambda one: sum(one.counts.values()))

    numbers = [(str(state), number, found.was[state]) for state, number in found.counts.items()]
    numbers.append(("DEAD, cancelled", found.cancelled, found.was_cancelled))
    answer(session, found, lambda: rows(("State", "Tasks", "The counter said"), numbers))
    off = sum(abs(number - was) for _, number, was in numbers)
    result = f"were off by {off:,} and are corrected." if off else "were right."
    session.note(f"The counters {result}")
    if not found.exact:
        session.note("Tasks changed during the recount: the counters may be off by those tasks.")


@queue_command.command("purge", example="headrace queue purge mail --state DEAD --dry-run")
@queue_argument
@click.option(
    "--state",
    "states",
    multiple=True,
    required=True,
    metavar="STATE,…",
    help=f"{', '.join(_STATES)}, or all; repeatable.",
)
@dry_run_option("Only count the tasks.")
@undo_option
@yes_option
@click.pass_obj
def purge(
    session: CliSession,
    queue: str,
    states: tuple[str, ...],
    *,
    dry_run: bool,
    undo_for: float,
    yes: bool,
) -> None:
    """Delete all tasks in some states; settings and schedules stay.

    Deletes the tasks that were there at the call and have such a state when the purge reaches them.
    """
    chosen = list(_STATES) if split(states) == ["all"] else [one.upper() for one in split(states)]
    unknown = [one for one in chosen if one not in _STATES]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]} must be one of {', '.join(_STATES)}, all", param_hint="'--state'"
        )
    client = session.client
    if not dry_run and not yes:
        count = count_of(session, queue, {"state": chosen})
        session.ask(
            f"{amount(count.count, 'task')} of {queue} ({', '.join(chosen)}) will be deleted"
            f"{how_long(undo_for)}.",
            yes=yes,
            name=queue,
        )
    if dry_run:
        _would_go(session, queue, chosen)
        return
    purged = client.purge_queue(queue, chosen, undo_in_seconds=undo_for)
    later = "; the others are deleted in the background" if purged.in_background else ""
    done(session, f"{amount(purged.deleted, 'task')} deleted{later}.", purged)
    if purged.undo is not None and (purged.deleted or purged.in_background):
        session.note(undo_note(purged.undo))


@queue_command.command("delete", example="headrace queue delete mail --dry-run")
@queue_argument
@dry_run_option("Only count the tasks.")
@yes_option
@click.pass_obj
def delete(session: CliSession, queue: str, *, dry_run: bool, yes: bool) -> None:
    """Delete a queue with all its tasks and schedules."""
    client = session.client
    if dry_run:
        _would_go(session, queue, list(_STATES))
        return
    if not yes:
        count = count_of(session, queue, {})
        session.ask(
            f"{queue} will be deleted, with {amount(count.count, 'task')} and its schedules;"
            " that cannot be undone.",
            yes=yes,
            name=queue,
        )
    gone = client.delete_queue(queue)
    state = "deleted" if gone else "being deleted in the background"
    done(session, f"Queue {queue} is {state}.", {"queue": queue, "in_background": not gone})


def _would_go(session: CliSession, queue: str, states: list[str]) -> None:
    count = count_of(session, queue, {"state": states})
    by_state = {str(state): number for state, number in count.by_state.items() if state in states}
    answer(session, count, lambda: rows(("State", "Would be deleted"), by_state.items()))


@queue_command.command("secret", example="headrace queue secret hooks --rotate")
@click.argument("queue")
@click.option("--rotate", is_flag=True, help="Make a new secret; the old one is valid for a day.")
@click.pass_obj
def secret(session: CliSession, /, queue: str, *, rotate: bool) -> None:
    """Show the secret that signs the requests to a queue's target."""
    client = session.client
    found = client.rotate_signing_secret(queue) if rotate else client.get_signing_secret(queue)

    def show_() -> None:
        click.echo(found.secret or "This is a repeated answer: run it again without --rotate.")
        if found.previous and found.previous_until:
            until = found.previous_until.isoformat(timespec="seconds")
            click.echo(f"{found.previous} is valid until {until}", err=True)

    answer(session, found, show_)


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as the API has them: the file's, then the options', then --set."""
    found = params.json_object(given["from_file"]) if given["from_file"] else {}
    fields = {name: value for name, value in found.items() if name not in NOT_SETTINGS}
    for setting in _COMMON:
        if given[setting.about.short] is not None:
            params.put_at(fields, setting.path, given[setting.about.short])
    if given["rate"] is not None:
        params.put_at(fields, ("dequeuing_settings", "rate_limiting"), given["rate"] or None)
    if given["groups"] is not None:
        fields["groups"] = given["groups"] or None
    if given["target_url"] is not None:
        target = fields.get("target") or {}
        fields["target"] = {**target, "url": given["target_url"], "lambda": None}
    if given["on_end"] is not None:
        fields["on_end"] = given["on_end"] or None
    for path, value in given["assigned"]:
        params.put_at(fields, path, value)
    known = list(QueueFields.__annotations__)
    for name in fields:
        if name not in known:
            raise click.UsageError(unknown(name, "a queue", known))
    return fields
