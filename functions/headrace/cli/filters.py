"""The API's filters of tasks as options, and the function that a task calls."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from headrace.cli.commands import options, query_option, split, tag_option
from headrace.cli.params import INSTANT, PRIORITY
from headrace.client.calls.many import TaskFilters
from headrace.domain.errors import Forbidden
from headrace.domain.filters import STATE_WORDS
from headrace.domain.query import read
from headrace.domain.query_grammar import term_text
from headrace.wire.tasks import Task

if TYPE_CHECKING:
    from headrace.client.client import Client


def _complete_states(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last state of a list with commas."""
    del ctx, param
    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{word}")
        for word in STATE_WORDS
        if word.lower().startswith(begun.lower())
    ]


function_option: Final = click.option(
    "--task",
    "function",
    metavar="NAME",
    help="Only calls of this function, for example mail.send.",
)

filter_options: Final = options(
    click.option(
        "--state",
        multiple=True,
        metavar="STATE,…",
        shell_complete=_complete_states,
        help=f"One or more of {', '.join(STATE_WORDS)}: SCHEDULED and READY are ENQUEUED, not yet "
        "due and due; pending is ENQUEUED or INFLIGHT, running INFLIGHT, failed DEAD.",
    ),
    tag_option("Only tasks with all of these tags."),
    click.option("--worker", metavar="NAME", help="The worker of the latest delivery."),
    click.option(
        "--scheduled-after",
        **INSTANT,
        help="By due time, end of lease or finish, depending on the state: 2026-11-21T08:00:00Z, "
        "or -1h.",
    ),
    click.option("--scheduled-before", **INSTANT, help="Like --scheduled-after."),
    click.option("--min-attempts", type=int, metavar="N", help="At least N deliveries."),
    click.option("--error", metavar="TEXT", help="Part of the latest error, in any case."),
    click.option(
        "--priority",
        **PRIORITY,
        help="Only this priority.",
    ),
    click.option("--group-key", metavar="KEY", help="Only this group."),
    function_option,
    query_option("state:dead tag:tenant=acme payload.order:77"),
)


def take_filters(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the filters from the options of a command, and return the given ones."""
    found = {name: given.pop(name) for name in TaskFilters.__annotations__}
    found["state"] = ",".join(_states(found["state"])) or None
    found["query"] = query_of(given.pop("function"), found["query"])
    return {name: value for name, value in found.items() if value is not None}


def query_of(function: str | None, query: str | None = None) -> str | None:
    """Return *query* limited to the calls of *function*, if it is given."""
    term = None if function is None else term_text("task", function)
    return " ".join(filter(None, (term, query))) or None


def with_states(where: dict[str, Any], states: str) -> dict[str, Any]:
    """Return *where* limited to *states*, unless it names states.

    Raises InvalidRequest for a wrong query.
    """
    named = "state" in where or read(where.get("query", "")).where.states
    return where if named else {"state": states, **where}


def _states(texts: tuple[str, ...]) -> list[str]:
    """Return the states in the API's spelling, whatever case was given."""
    known = {word.lower(): word for word in STATE_WORDS}
    words = split(texts)
    unknown = [word for word in words if word.lower() not in known]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} must be one of {', '.join(STATE_WORDS)}", param_hint="'--state'"
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
    return ", ".join(parts) or "all"


def list_calls(
    client: "Client", queue: str, *, payload: bool = False, **filters: Any
) -> Iterator[Task]:
    """Yield tasks with their payloads if the key may see them.

    Raises Forbidden if the key may not, and *payload* or a filter needs them.
    """
    tasks: Iterator[Task] = client.list_tasks(queue, **filters, payload=True)
    try:
        first = list(islice(tasks, 1))
    except Forbidden:
        if payload:
            raise
        yield from client.list_tasks(queue, **filters)
        return
    yield from chain(first, tasks)
