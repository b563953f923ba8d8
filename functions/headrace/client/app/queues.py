"""The queues of an app, and making those that are missing."""

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.client.aio import AsyncClient
from headrace.client.app import checks
from headrace.client.call import ApiCall
from headrace.client.calls.queues import create_queue
from headrace.client.client import Client
from headrace.client.models import Queue
from headrace.domain.errors import Forbidden, NotFound, QueueExists

T = TypeVar("T")


class AppQueues:
    """Names in order of declaration, each with the settings it is made with.

    A worker makes all of them, and takes tasks from those that something is declared for.
    """

    def __init__(self, *, create: bool) -> None:
        self._create = create
        self._settings: dict[str, dict[str, Any]] = {}
        self._worked: set[str] = set()

    @property
    def worked(self) -> list[str]:
        """The queues with a task function or a handler, in order of declaration."""
        return [name for name in self._settings if name in self._worked]

    def declare(self, name: str, settings: dict[str, Any]) -> None:
        """Add a queue, or settings to one that was named before.  Raises InvalidRequest."""
        self._settings.setdefault(checks.name("queue", name), {}).update(settings)

    def work(self, name: str) -> None:
        """Add a queue that a worker takes tasks from.  Raises InvalidRequest."""
        self.declare(name, {})
        self._worked.add(name)

    def ensure(self, client: Client) -> None:
        """Make those that are missing; existing ones stay as they are.

        Raises NotFound naming the command when this is not wanted or the key may not.
        """
        for name in self._settings:
            try:
                client.get_queue(name)
            except NotFound as missing:
                self.make(client, name, missing)

    def with_queue(self, client: Client, name: str, call: Callable[[], T]) -> T:
        """Call *call*; where the queue is missing, create it and call once more."""
        try:
            return call()
        except NotFound as missing:
            self.make(client, name, missing)
        return call()

    def make(self, client: Client, name: str, missing: NotFound) -> None:
        """Make a queue.  Raises NotFound naming the command when it may not be made."""
        self.check_wanted(name, missing)
        try:
            client.send(self._creation(name))
        except QueueExists:
            return  # somebody was quicker
        except Forbidden as error:
            raise _missing(name, "this key may not make queues") from error

    async def amake(self, client: AsyncClient, name: str, missing: NotFound) -> None:
        """Do the same from an event loop."""
        self.check_wanted(name, missing)
        try:
            await client.send(self._creation(name))
        except QueueExists:
            return
        except Forbidden as error:
            raise _missing(name, "this key may not make queues") from error

    def _creation(self, name: str) -> ApiCall[Queue]:
        return create_queue(name, **self._settings.get(name, {}))

    def check_wanted(self, name: str, missing: NotFound) -> None:
        """Raise NotFound naming the command if missing queues are not to be made."""
        if not self._create:
            raise _missing(name, "this app makes none (create_queues=False)") from missing


def _missing(name: str, why: str) -> NotFound:
    return NotFound(f"there is no queue {name}, and {why}: run `headrace queue create {name}`")
