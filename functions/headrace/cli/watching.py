"""Looking again and again: `headrace stats` and `headrace task tail`."""

import contextlib
import os
import select
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
from headrace.cli.filters import function_of, function_option, list_calls
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
from headrace.cli.session import CliSession, stdin_is_terminal
from headrace.client.client import Client
from headrace.domain.errors import HeadraceError, RateLimited, Unavailable
from headrace.domain.texts import escape_unseen
from headrace.wire.queues import Stats
from headrace.wire.tasks import Task

_NUMBERS: Final = ("Scheduled", "Ready", "In flight", "Succeeded", "Dead", "Cancelled")
_RATES: Final = ("In/s", "Out/s", "Done/s", "Fail/s")
EACH_TIME: Final = 500
"""Tasks of each kind that one look goes through."""

_OVERLAP: Final = timedelta(seconds=5)  # what the index may lag behind
_REMEMBERED: Final = 20_000
_KINDS: Final = ("SUCCEEDED", "DEAD", "INFLIGHT", "ENQUEUED")
_STYLES: Final = {"SUCCEEDED": "green", "DEAD": "red", "INFLIGHT": "cyan"}


@click.command(
    "stats", cls=CliCommand, example="headrace stats --watch\nheadrace stats mail --json"
)
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.option("--watch", is_flag=True, help="Go on showing them, until q or Ctrl-C.")
@click.option(
    "--interval", type=params.seconds, default="2s", metavar="TIME", help="Of --watch: 2s."
)
@click.option("--exact", is_flag=True, help="Count, where large numbers are else estimated.")
@click.option("--looks", type=click.IntRange(min=1), metavar="N", help="End --watch after so many.")
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
    """Show how queues are doing.

    Some, or all: counts, how long the oldest task has been ready, events per second in the last
    minute, and how old all that is.
    """
    client = session.client
    if not watch:
        found = _ask(client, queues, exact=exact)
        if session.json:
            document([_flat(name, stats) for name, stats in found])
        else:
            write(_table(found))
        return
    if session.json or not sys.stdout.isatty():
        for _ in _looks(looks, partial(time.sleep, interval)):
            found = _ask(client, queues, exact=exact)
            if session.json:
                for name, stats in found:
                    line(_flat(name, stats))
            else:
                write(_table(found))
        return
    _live(session, queues, interval, looks, exact=exact)


def _ask(client: Client, queues: Sequence[str], *, exact: bool) -> list[tuple[str, Stats]]:
    names = queues or [queue.name for queue in client.list_queues()]
    return [(name, client.get_stats(name, exact=exact)) for name in names]


def _flat(name: str, stats: Stats) -> dict[str, object]:
    return {"queue": name, **{one: getattr(stats, one) for one in stats.__struct_fields__}}


def _table(found: Sequence[tuple[str, Stats]]) -> Table:
    made = grid(
        "Queue",
        *_NUMBERS,
        "Oldest",
        *_RATES,
        "Age",
        right=(*_NUMBERS, "Oldest", *_RATES, "Age"),
    )
    for name, stats in found:
        counts, rates = stats.counts, stats.rates
        made.add_row(
            cell(name),
            *map(cell, (counts.scheduled, counts.ready, counts.inflight, counts.succeeded)),
            cell(counts.dead, "red" if counts.dead > counts.cancelled else ""),
            cell(counts.cancelled),
            cell(span(stats.age_of_oldest_ready_seconds)),
            *(
                f"{rate:,.1f}"
                for rate in (
                    rates.enqueued_per_second,
                    rates.dequeued_per_second,
                    rates.succeeded_per_second,
                    rates.failed_per_second,
                )
            ),
            cell(span(stats.staleness_seconds)),
        )
    return made


def _live(
    session: CliSession,
    queues: Sequence[str],
    interval: float,
    looks: int | None,
    *,
    exact: bool,
) -> None:
    """Keep one table up to date in place; a service that is away for a while ends nothing."""
    client = session.client
    table = _table(_ask(client, queues, exact=exact))
    message = ""
    with _keys(), Live(table, console=console(), auto_refresh=False, screen=True) as live:
        for number in _looks(looks, lambda: _pressed_q(interval)):
            try:
                table, message = _table(_ask(client, queues, exact=exact)) if number else table, ""
            except (Unavailable, RateLimited) as error:
                message = f"The service does not answer: {session.explain(error)}"
            except HeadraceError:
                live.stop()
                raise
            live.update(Stack(table, Text(f"\nq ends it. {message}", style="dim")), refresh=True)


def _looks(times: int | None, wait: Callable[[], bool | None]) -> Iterator[int]:
    """Number the looks, so many or for ever; after a *wait* that returns True there are no more."""
    for number in range(times) if times else count():
        if number and wait():
            return
        yield number


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Let single keys be read while this lasts, where stdin is a terminal."""
    try:
        import termios  # noqa: PLC0415 (not on every system)
        import tty  # noqa: PLC0415 (likewise)
    except ImportError:
        yield
        return
    if not stdin_is_terminal():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed_q(within: float) -> bool:
    """Wait for *within* seconds; True as soon as somebody presses q."""
    if not stdin_is_terminal():
        time.sleep(within)
        return False
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            typed = os.read(sys.stdin.fileno(), 64)
            if not typed or b"q" in typed.lower():
                return True
    return False


class SeenTasks:
    """How tasks stood when they were last looked at; of the latest *most* only."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._marks: OrderedDict[str, tuple[object, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def is_news(self, task: Task, since: datetime) -> bool:
        """Whether *task* is new, or stands otherwise than it did; remember how."""
        mark = (task.state, task.attempts, task.scheduled_at, task.started_at)
        known = self._marks.get(task.id)
        if known == mark:
            return False
        self._marks[task.id] = mark
        self._marks.move_to_end(task.id)
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)
        return known is not None or changed_at(task) > since


def changed_at(task: Task) -> datetime:
    """Return when *task* last changed, as far as it tells."""
    times = [task.created_at, task.started_at, task.finished_at]
    times += [error.at for error in task.errors[-1:]]
    times += [hop.at for hop in task.trail[-1:]]
    return max(at for at in times if at is not None)


def shown_at(task: Task, now: datetime) -> datetime:
    """Return when *task* came to stand as it does, as near as that can be told *now*.

    A task that was given back has no time of that: it is due from then on, or some time later.
    """
    at = changed_at(task)
    waits = task.state == "ENQUEUED" and task.started_at is not None
    given_back = waits and at == task.started_at
    return max(at, min(task.scheduled_at, now)) if given_back else at


def look(
    client: Client,
    queue: str,
    since: datetime,
    seen: SeenTasks,
    *,
    now: datetime,
    function: str | None = None,
) -> Iterator[tuple[datetime, Task]]:
    """Return the tasks of *queue* that are new or have changed after *since*, with that time.

    *seen* is how they stood before, and is kept up to date; *function* leaves out all other calls.
    """
    news: list[tuple[datetime, Task]] = []
    for state in _KINDS:
        found = list_calls(
            client, queue, state=state, scheduled_after=since, limit=250, function=function
        )
        news += [
            (shown_at(task, now), task)
            for task in islice(found, EACH_TIME)
            if seen.is_news(task, since)
        ]
    yield from sorted(news, key=itemgetter(0))


@click.command(
    "tail",
    cls=CliCommand,
    example="headrace task tail mail --since -10m",
    short_help="Follow a queue.",
)
@queue_argument
@function_option
@click.option("--since", **INSTANT, help="Begin then: -10m; else now.")
@click.option(
    "--interval", type=params.seconds, default="2s", metavar="TIME", help="Between looks: 2s."
)
@click.option("--looks", type=click.IntRange(min=1), metavar="N", help="End after so many looks.")
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

    It asks the lists every --interval, four calls each time.  What happens between two looks is
    shown once, as it stands, with the time of the latest change that the task tells of; of each
    state the first 500 are looked at.
    """
    client = session.client
    seen = SeenTasks()
    began = since or client.health().now
    now = began
    out = console()
    for _ in _looks(looks, partial(time.sleep, interval)):
        at = client.health().now
        after = max(began, now - _OVERLAP)
        for shown, task in look(client, queue, after, seen, now=at, function=function):
            if session.json:
                line(fields_of(task, "payload"))
            else:
                out.print(
                    cell(_line(task, shown), _STYLES.get(str(task.state), "")), soft_wrap=True
                )
        now = at


def _line(task: Task, shown: datetime) -> str:
    parts = [when(shown), f"{task.status:<9}", task.id]
    if name := function_of(task):
        parts.append(name)
    if task.attempts:
        parts.append(f"attempt {task.attempts}")
    if task.worker and task.state == "INFLIGHT":
        parts.append(f"by {task.worker}")
    if task.errors and task.state != "SUCCEEDED":
        parts.append(error_line(task.errors[-1]))
    parts += [f"{name}={value}" for name, value in task.tags.items()]
    return escape_unseen(" ".join(parts)).replace("\n", " ")
