"""Which tasks are meant: the API's filters as options, and the function that a task calls.

A payload says its function, where it is a call that can be read here.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from headrace.cli.commands import options, split, tag_option
from headrace.cli.params import INSTANT, PRIORITY
from headrace.domain.errors import Forbidden
from headrace.domain.filters import STATE_WORDS
from headrace.domain.query import read
from headrace.wire.tasks import Task

if TYPE_CHECKING:
    from headrace.client.client import Client


def _complete_states(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last of the states that stand there with commas between."""
    del ctx, param
    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{word}")
        for word in STATE_WORDS
        if word.lower().startswith(begun.lower())
    ]


filter_options: Final = options(
    click.option(
        "--state",
        multiple=True,
        metavar="STATE,…",
        shell_complete=_complete_states,
        help=f"One or more of {', '.join(STATE_WORDS)}: SCHEDULED and READY are ENQUEUED, not yet "
        "due and due; pending is ENQUEUED or INFLIGHT, running INFLIGHT, failed DEAD.",
    ),
    tag_option("All of these."),
    click.option("--worker", metavar="NAME", help="The worker of the latest delivery."),
    click.option(
        "--scheduled-after",
        **INSTANT,
        help="A state's own time (due, end of lease, finish): 2026-11-21T08:00:00Z, or -1h.",
    ),
    click.option("--scheduled-before", **INSTANT, help="Likewise."),
    click.option("--min-attempts", type=int, metavar="N", help="Delivered so often at least."),
    click.option(
        "--error", metavar="TEXT", help="A part of the latest error, upper or lower case."
    ),
    click.option(
        "--priority",
        **PRIORITY,
        help="Of this priority.",
    ),
    click.option("--group-key", metavar="KEY", help="Of this group."),
    click.option(
        "--query",
        metavar="TEXT",
        help="As in the console's search boxes: 'state:dead tag:tenant=acme payload.order:77'.",
    ),
)


def take_filters(given: dict[str, Any]) -> dict[str, Any]:
    """Take the filters out of what a command was given, and return those that say something."""
    found = {
        "state": ",".join(_states(given.pop("state"))) or None,
        "tags": given.pop("tags"),
        **{
            name: given.pop(name)
            for name in (
                *("worker", "scheduled_after", "scheduled_before"),
                *("min_attempts", "error", "priority", "group_key", "query"),
            )
        },
    }
    return {name: value for name, value in found.items() if value is not None}


def with_states(where: dict[str, Any], states: str) -> dict[str, Any]:
    """Return *where* of *states*, unless it names some itself.

    Raises InvalidRequest for a query that makes no sense.
    """
    named = "state" in where or read(where.get("query", "")).where.states
    return where if named else {"state": states, **where}


def _states(texts: tuple[str, ...]) -> list[str]:
    """Return the states in the API's spelling: people need not know which are in capitals."""
    known = {word.lower(): word for word in STATE_WORDS}
    words = split(texts)
    unknown = [word for word in words if word.lower() not in known]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(STATE_WORDS)}", param_hint="'--state'"
        )
    return [known[word.lower()] for word in words]


def described(where: Mapping[str, Any]) -> str:
    """Return filters in words, for a question."""
    parts = [
        f"{name} {' '.join(f'{one}={text}' for one, text in value.items())}"
        if isinstance(value, dict)
        else f"{name} {value}"
        for name, value in where.items()
    ]
    return ", ".join(parts) or "every one"


class _FunctionCall(msgspec.Struct):
    task: str | None = None


_reads: Final = msgspec.json.Decoder(_FunctionCall)

function_option: Final = click.option(
    "--task",
    "function",
    metavar="NAME",
    help="Only calls of this function, as mail.send: picked here, from all that the rest holds "
    "for.",
)


def function_of(task: Task) -> str | None:
    """Return the name of the function that *task* calls; None: a raw payload, or not readable."""
    try:
        return _reads.decode(task.payload_json).task
    except (msgspec.DecodeError, RecursionError):
        return None


def list_calls(
    client: "Client",
    queue: str,
    *,
    function: str | None = None,
    payload: bool = False,
    **filters: Any,
) -> Iterator[Task]:
    """Go through tasks with their payloads, where the key may see them; of *function* only.

    Raises Forbidden where it may not, and *payload* or *function* was asked for.
    """
    tasks: Iterator[Task] = client.list_tasks(queue, **filters, payload=True)
    try:
        first = list(islice(tasks, 1))
    except Forbidden:
        if payload or function is not None:
            raise
        yield from client.list_tasks(queue, **filters)
        return
    for task in chain(first, tasks):
        if function is None or function_of(task) == function:
            yield task
