"""Queues of calls that an app makes, where a batch or a workflow finds them missing.

A call knows its app, which makes a queue as it declares it: as where the call were enqueued.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.client.calls.queues import get_queue
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound

if TYPE_CHECKING:
    from headrace.client.filling import AsyncSender, Sender


T = TypeVar("T")


class QueueMaker(Protocol):
    """What makes queues as an app declares them."""

    def make(self, client: "Sender", name: str, missing: NotFound) -> None:
        """Make one.  Raises NotFound naming the command when it may not be made."""

    async def amake(self, client: "AsyncSender", name: str, missing: NotFound) -> None:
        """Do the same from an event loop."""


def with_queues(client: "Sender", calls: Iterable[object], send: Callable[[], T]) -> T:
    """Return what *send* does, once more if a queue of *calls* was missing that their app makes.

    Raises as it does, and NotFound naming the command where a queue may not be made.
    """
    try:
        return send()
    except (NotFound, InvalidRequest) as refusal:
        if not _make_missing(client, calls, refusal):
            raise
    return send()


async def awith_queues(
    client: "AsyncSender", calls: Iterable[object], send: Callable[[], Awaitable[T]]
) -> T:
    """Do the same from an event loop."""
    try:
        return await send()
    except (NotFound, InvalidRequest) as refusal:
        if not await _amake_missing(client, calls, refusal):
            raise
    return await send()


def _make_missing(
    client: "Sender", calls: Iterable[object], refusal: NotFound | InvalidRequest
) -> bool:
    """Make the queues of *calls* that are missing; tell whether that may help after *refusal*."""
    made = False
    for name, maker in _makers(calls, refusal):
        try:
            client.send(get_queue(name))
        except Forbidden:
            continue
        except NotFound as missing:
            maker.make(client, name, missing)
            made = True
    return made


async def _amake_missing(
    client: "AsyncSender", calls: Iterable[object], refusal: NotFound | InvalidRequest
) -> bool:
    """Do the same from an event loop."""
    made = False
    for name, maker in _makers(calls, refusal):
        try:
            await client.send(get_queue(name))
        except Forbidden:
            continue
        except NotFound as missing:
            await maker.amake(client, name, missing)
            made = True
    return made


def _makers(
    calls: Iterable[object], refusal: NotFound | InvalidRequest
) -> Iterator[tuple[str, QueueMaker]]:
    """Yield the queues of *calls*, each once, unless *refusal* is about something else."""
    fields = [error.field for error in refusal.errors]
    if isinstance(refusal, InvalidRequest) and not any(one.endswith("queue") for one in fields):
        return
    seen = set()
    for call in calls:
        maker: QueueMaker | None = getattr(call, "queue_maker", None)
        name: str | None = getattr(call, "queue", None)
        if maker is not None and name is not None and name not in seen:
            seen.add(name)
            yield name, maker
