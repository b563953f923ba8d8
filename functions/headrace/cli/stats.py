"""`headrace stats`: how queues are doing, once or as a live table."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Group as Stack
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli import params
from headrace.cli.commands import CliCommand, queue_names
from headrace.cli.output import cell, console, document, grid, line, span, write
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.client.models import Stats
from headrace.domain.errors import HeadraceError, RateLimited, Unavailable

_NUMBERS: Final = ("Scheduled", "Ready", "In flight", "Succeeded", "Dead")
_RATES: Final = ("In/s", "Out/s", "Done/s", "Fail/s")


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
        for _ in _ticks(interval, looks):
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
            cell(counts.dead, "red" if counts.dead else ""),
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
    with _keys(), Live(table, console=console(), auto_refresh=False, screen=True) as live:
        left = looks
        message = ""
        while left is None or left > 0:
            live.update(Stack(table, Text(f"\nq ends it. {message}", style="dim")), refresh=True)
            left = None if left is None else left - 1
            if left != 0 and _pressed_q(interval):
                return
            try:
                table, message = _table(_ask(client, queues, exact=exact)), ""
            except (Unavailable, RateLimited) as error:
                message = f"The service does not answer: {session.explain(error)}"
            except HeadraceError:
                live.stop()
                raise


def _ticks(interval: float, looks: int | None) -> Iterator[int]:
    number = 0
    while looks is None or number < looks:
        if number:
            time.sleep(interval)
        yield number
        number += 1


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Let single keys be read while this lasts, where stdin is a terminal."""
    try:
        import termios  # noqa: PLC0415 (not on every system)
        import tty  # noqa: PLC0415 (likewise)
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
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
    if not sys.stdin.isatty():
        time.sleep(within)
        return False
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            typed = os.read(sys.stdin.fileno(), 64)
            if not typed or b"q" in typed.lower():
                return True
    return False
