"""`headrace schedule`: tasks that are enqueued at fixed times."""

from typing import Any

import click

from headrace.cli import params
from headrace.cli.commands import (
    CliGroup,
    dry_run_option,
    exactly_one,
    queue_argument,
    queue_names,
    yes_option,
)
from headrace.cli.enqueue import task_options
from headrace.cli.output import Column, answer, done, facts, made_fields, pretty, rows, span, table
from headrace.cli.params import TIME
from headrace.cli.session import CliSession
from headrace.domain.schedule import Missed
from headrace.domain.task import OnExpiry
from headrace.domain.task_fields import SetBy, texts
from headrace.wire.queues import Schedule, ScheduleInShort


@click.group(
    "schedule",
    cls=CliGroup,
    example="headrace schedule put mail digest --cron '0 8 * * MON-FRI' --timezone Europe/Madrid",
)
def schedule_command() -> None:
    """Put, show, trigger and delete schedules."""


@schedule_command.command(
    "put",
    example="headrace schedule put mail digest --cron '0 8 * * *' --payload '{\"to\": \"all\"}'",
)
@queue_argument
@click.argument("name")
@click.option("--cron", metavar="CRON", help="5 to 7 fields: '*/5 * * * *'.")
@click.option("--every", "every_seconds", **TIME, help="Interval, instead of --cron: 10m.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron: Europe/Madrid; else UTC.")
@click.option("--payload", metavar="JSON", help="Payload of each task; - is stdin.")
@task_options(SetBy.SCHEDULE)
@click.option(
    "--expires",
    "expires_in_seconds",
    **TIME,
    help="A task that is not delivered within this time expires.",
)
@click.option(
    "--missed",
    type=click.Choice([one.value for one in Missed]),
    help="What happens to ticks that no scheduler was there for; default: latest.",
)
@click.option(
    "--on-expiry",
    type=click.Choice([one.value for one in OnExpiry]),
    help="What happens to a tick that expires; default: dead.",
)
@click.option("--paused", is_flag=True, help="Enqueue nothing until it is put without --paused.")
@click.pass_obj
def put(session: CliSession, /, queue: str, name: str, **given: Any) -> None:
    """Create or replace a schedule."""
    exactly_one({"--cron": given["cron"], "--every": given["every_seconds"]})
    if given["payload"] is not None:
        given["payload"] = params.json_of("--payload", given["payload"])
    schedule = session.client.put_schedule(queue, name, **given)
    answer(session, schedule, lambda: _show(schedule))


@schedule_command.command("list", example="headrace schedule list mail")
@queue_argument
@click.pass_obj
def list_(session: CliSession, queue: str) -> None:
    """List the schedules of a queue."""
    schedules = list(session.client.list_schedules(queue))
    columns: dict[str, Column] = {
        "Schedule": "name",
        "When": _rhythm,
        "Zone": "timezone",
        "Next": "next_run_at",
        "Paused": "paused",
    }
    answer(session, schedules, lambda: table(columns, schedules))


@schedule_command.command("next", example="headrace schedule next")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.pass_obj
def next_(session: CliSession, queues: tuple[str, ...]) -> None:
    """Show the next ticks of some queues or all, soonest first."""
    client = session.client
    names = queues or tuple(queue.name for queue in client.list_queues())
    found = [
        {"queue": name, "schedule": one.name, "next_run_at": one.next_run_at}
        for name in names
        for one in client.list_schedules(name)
        if one.next_run_at is not None
    ]
    found.sort(key=lambda one: str(one["next_run_at"]))
    answer(session, found, lambda: rows(("Next", "Queue", "Schedule"), map(_tick, found)))


@schedule_command.command("show", example="headrace schedule show mail digest")
@queue_argument
@click.argument("name")
@click.pass_obj
def show(session: CliSession, queue: str, name: str) -> None:
    """Show a schedule."""
    schedule = session.client.get_schedule(queue, name)
    answer(session, schedule, lambda: _show(schedule))


@schedule_command.command("trigger", example="headrace schedule trigger mail digest")
@queue_argument
@click.argument("name")
@click.pass_obj
def trigger(session: CliSession, queue: str, name: str) -> None:
    """Enqueue a task of a schedule now."""
    made = session.client.run_schedule(queue, name)
    answer(session, made_fields(made), lambda: click.echo(made.id or made.outcome))


@schedule_command.command("delete", example="headrace schedule delete mail digest")
@queue_argument
@click.argument("name")
@dry_run_option("Only show it.")
@yes_option
@click.pass_obj
def delete(session: CliSession, queue: str, name: str, *, dry_run: bool, yes: bool) -> None:
    """Delete a schedule and its tasks that are not due yet; due tasks stay."""
    if dry_run:
        schedule = session.client.get_schedule(queue, name)
        answer(session, schedule, lambda: _show(schedule))
        return
    session.ask(f"Schedule {name} of {queue} will be deleted.", yes=yes)
    session.client.delete_schedule(queue, name)
    done(session, f"Schedule {name} of {queue} is deleted.", {"queue": queue, "schedule": name})


def _tick(one: dict[str, Any]) -> tuple[object, ...]:
    return one["next_run_at"], one["queue"], one["schedule"]


def _rhythm(schedule: ScheduleInShort) -> str:
    return schedule.cron or f"every {span(schedule.every_seconds)}"


def _show(schedule: Schedule) -> None:
    facts(
        [
            ("name", schedule.name),
            ("when", _rhythm(schedule)),
            ("timezone", schedule.timezone),
            ("paused", schedule.paused),
            ("next", schedule.next_run_at),
            ("last", schedule.last_run_at),
            ("tags", schedule.tags),
            *((field.name, getattr(schedule, field.api_name)) for field in texts(SetBy.SCHEDULE)),
            ("dedupe until", schedule.dedupe_until if schedule.dedupe_key else None),
            ("expires in", span(schedule.expires_in_seconds)),
            ("priority", schedule.priority),
            ("missed", schedule.missed),
            ("on expiry", schedule.on_expiry),
            ("payload", pretty(bytes(schedule.payload_json))),
        ]
    )
