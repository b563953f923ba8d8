"""Commands that poll: `headrace stats` and `headrace task tail`."""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import count, islice
from operator import itemgetter
from typing import Final

import click
from rich.console import Group as Stack
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli import params
from headrace.cli.commands import CliCommand, queue_argument, queue_names
from headrace.cli.filters import function_option, list_calls, query_of
from headrace.cli.output import (
    cell,
    console,
    document,
    error_line,
    fields_of,
    grid,
    line,
    span,
    when,
    write,
)
from headrace.cli.params import INSTANT
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.domain.errors import RateLimited, Unavailable
from headrace.domain.list_query import called_function
from headrace.domain.texts import escape_unseen
from headrace.wire.queues import Stats
from headrace.wire.tasks import Task

_NUMBERS: Final = ("Scheduled", "Ready", "In flight", "Succeeded", "Dead", "Cancelled")
_RATES: Final = ("In/s", "Out/s", "Done/s", "Fail/s")
_POLLED: Final = 500  # tasks of each state in one poll of a tail
_OVERLAP: Final = timedelta(seconds=5)  # how far the index may be behind
_REMEMBERED: Final = 20_000
_STATES: Final = ("SUCCEEDED", "DEAD", "INFLIGHT", "ENQUEUED")
_STYLES: Final = {"SUCCEEDED": "green", "DEAD": "red", "INFLIGHT": "cyan"}


@click.command(
    "stats", cls=CliCommand, example="headrace stats --watch\nheadrace stats mail --json"
)
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.option("--watch", is_flag=True, help="Update the table until Ctrl-C.")
@click.option(
    "--interval", type=params.seconds, default="2s", metavar="TIME", help="Of --watch: 2s."
)
@click.option("--exact", is_flag=True, help="Count large numbers instead of estimating them.")
@click.option("--looks", type=click.IntRange(min=1), metavar="N", help="Stop after N updates.")
@click.pass_obj
def stats_command(
    session: CliSession,
    queues: tuple[str, ...],
    *,
    watch: bool,
    interval: float,
    exact: bool,
    looks: int | None,
) -> None:
    """Show counts and rates of queues.

    Rates are events per second in the last minute; Age is how old the numbers are.
    """
    client = session.client

    def ask() -> list[tuple[str, Stats]]:
        names = queues or [queue.name for queue in client.list_queues()]
        return [(name, client.get_stats(name, exact=exact)) for name in names]

    if not watch:
        found = ask()
        if session.json:
            document([_flat(name, stats) for name, stats in found])
        else:
            write(_table(found))
    elif session.json or not sys.stdout.isatty():
        for _ in _polls(looks, interval):
            found = ask()
            if session.json:
                for name, stats in found:
                    line(_flat(name, stats))
            else:
                write(_table(found))
    else:
        _live(session, ask, _polls(looks, interval))


def _flat(name: str, stats: Stats) -> dict[str, object]:
    return {"queue": name, **{one: getattr(stats, one) for one in stats.__struct_fields__}}


def _table(found: Sequence[tuple[str, Stats]]) -> Table:
    right = (*_NUMBERS, "Oldest", *_RATES, "Age")
    made = grid("Queue", *right, right=right)
    for name, stats in found:
        counts, rates = stats.counts, stats.rates
        made.add_row(
            cell(name),
            *map(cell, (counts.scheduled, counts.ready, counts.inflight, counts.succeeded)),
            cell(counts.dead, "red" if counts.dead > counts.cancelled else ""),
            cell(counts.cancelled),
            cell(span(stats.age_of_oldest_ready_seconds)),
            f"{rates.enqueued_per_second:,.1f}",
            f"{rates.dequeued_per_second:,.1f}",
            f"{rates.succeeded_per_second:,.1f}",
            f"{rates.failed_per_second:,.1f}",
            cell(span(stats.staleness_seconds)),
        )
    return made


def _live(
    session: CliSession, ask: Callable[[], list[tuple[str, Stats]]], polls: Iterator[int]
) -> None:
    """Update one table in place; an unavailable service is reported below it."""
    table, message = _table(ask()), ""
    with Live(table, console=console(), auto_refresh=False, screen=True) as live:
        for number in polls:
            try:
                table, message = _table(ask()) if number else table, ""
            except (Unavailable, RateLimited) as error:
                message = f"The service does not answer: {session.explain(error)}"
            live.update(Stack(table, Text(f"\n{message}", style="dim")), refresh=True)


def _polls(times: int | None, interval: float) -> Iterator[int]:
    """Yield 0, 1, 2 … every *interval* seconds, *times* or without end."""
    for number in range(times) if times else count():
        if number:
            time.sleep(interval)
        yield number


@click.command(
    "tail",
    cls=CliCommand,
    example="headrace task tail mail --since -10m",
    short_help="Follow the tasks of a queue.",
)
@queue_argument
@function_option
@click.option("--since", **INSTANT, help="Start there, for example -10m; else now.")
@click.option(
    "--interval", type=params.seconds, default="2s", metavar="TIME", help="Between polls: 2s."
)
@click.option("--looks", type=click.IntRange(min=1), metavar="N", help="Stop after N polls.")
@click.pass_obj
def tail(
    session: CliSession,
    queue: str,
    *,
    function: str | None,
    since: datetime | None,
    interval: float,
    looks: int | None,
) -> None:
    """Follow the tasks of a queue as they come and change, until Ctrl-C.

    Polls the lists of the four states every --interval, the first 500 tasks of each.  A task that
    changes several times between two polls is shown once, in its latest state.
    """
    client, out = session.client, console()
    seen: OrderedDict[str, object] = OrderedDict()
    began, query = since or client.health().now, query_of(function)
    last = began
    for _ in _polls(looks, interval):
        now = client.health().now
        after = max(began, last - _OVERLAP)
        for at, task in _changed_tasks(client, queue, after, seen, now=now, query=query):
            if session.json:
                line(fields_of(task, "payload"))
            else:
                text = cell(_line(task, at), _STYLES.get(str(task.state), ""))
                out.print(text, soft_wrap=True)
        last = now


def _changed_tasks(
    client: Client,
    queue: str,
    since: datetime,
    seen: OrderedDict[str, object],
    *,
    now: datetime,
    query: str | None,
) -> list[tuple[datetime, Task]]:
    """Return the tasks that are new or have changed after *since*, by the time of the change.

    *seen* has the state of each task at the last poll, and is updated.  A change without a
    recorded time, such as a release, has the time *now*.
    """
    found: list[tuple[datetime, Task]] = []
    listed = partial(list_calls, client, queue, scheduled_after=since, limit=250)
    for state in _STATES:
        for task in islice(listed(state=state, query=query), _POLLED):
            mark = (task.state, task.attempts, task.scheduled_at, task.started_at)
            before = seen.get(task.id)
            at = _changed_at(task)
            if before != mark and (before is not None or at > since):
                found.append((at if at > since else now, task))
            seen[task.id] = mark
            seen.move_to_end(task.id)
    while len(seen) > _REMEMBERED:
        seen.popitem(last=False)
    return sorted(found, key=itemgetter(0))


def _changed_at(task: Task) -> datetime:
    """Return the latest time that *task* records."""
    times = [task.created_at, task.started_at, task.finished_at]
    times += [error.at for error in task.errors[-1:]]
    times += [hop.at for hop in task.trail[-1:]]
    return max(at for at in times if at is not None)


def _line(task: Task, at: datetime) -> str:
    parts = [when(at), f"{task.status:<9}", task.id]
    if name := called_function(bytes(task.payload_json).decode()):
        parts.append(name)
    if task.attempts:
        parts.append(f"attempt {task.attempts}")
    if task.worker and task.state == "INFLIGHT":
        parts.append(f"by {task.worker}")
    if task.errors and task.state != "SUCCEEDED":
        parts.append(error_line(task.errors[-1]))
    parts += [f"{name}={value}" for name, value in task.tags.items()]
    return escape_unseen(" ".join(parts)).replace("\n", " ")
