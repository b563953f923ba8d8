"""Which function a task is for: its payload says it, where it is a call that can be read here."""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from headrace.client.models import Task
from headrace.domain.errors import Forbidden

if TYPE_CHECKING:
    from headrace.client.client import Client


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
    **filters: Any,  # noqa: ANN401 (the API's filters)
) -> Iterator[Task]:
    """Go through tasks with their payloads, where the key may see them; of *function* only.

    Raises Forbidden where it may not, and *payload* or *function* was asked for.
    """
    tasks: Iterator[Task] = client.list_tasks(queue, **filters, payload=True)
    try:
        first = list(_some(tasks))
    except Forbidden:
        if payload or function is not None:
            raise
        yield from client.list_tasks(queue, **filters)
        return
    for task in chain(first, tasks):
        if function is None or function_of(task) == function:
            yield task


def _some(tasks: Iterator[Task]) -> Iterator[Task]:
    """Take the first, if there is one."""
    for task in tasks:
        yield task
        return
