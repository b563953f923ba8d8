"""`headrace task tail`: following a queue, by asking its lists again and again."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Final

import click

from headrace.cli import params
from headrace.cli.commands import CliCommand, queue_argument
from headrace.cli.functions import function_of, function_option, list_calls
from headrace.cli.output import cell, clean, console, error_line, line, when
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.client.models import Task

EACH_TIME: Final = 500
"""Tasks of each kind that one look goes through."""

_OVERLAP: Final = timedelta(seconds=5)  # what the index may lag behind
_REMEMBERED: Final = 20_000
_KINDS: Final = ("SUCCEEDED", "DEAD", "INFLIGHT", "ENQUEUED")
_STYLES: Final = {"SUCCEEDED": "green", "DEAD": "red", "INFLIGHT": "cyan"}


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
@click.option("--since", type=params.instant, metavar="INSTANT", help="Begin then: -10m; else now.")
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
    for number in range(looks) if looks else _forever():
        if number:
            time.sleep(interval)
        at = client.health().now
        after = max(began, now - _OVERLAP)
        for shown, task in look(client, queue, after, seen, now=at, function=function):
            if session.json:
                line(task, without=("payload",))
            else:
                out.print(
                    cell(_line(task, shown), _STYLES.get(str(task.state), "")), soft_wrap=True
                )
        now = at


def _forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


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
    return clean(" ".join(parts)).replace("\n", " ")
