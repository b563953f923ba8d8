"""What a smoke test has made, and how it is removed again, whatever happens meanwhile.

A thing is noted before the request that makes it goes out: where its answer is lost, it may be
there all the same.  It has a name of our own, so nothing of others can be meant; the one queue of
which that does not hold, that of notifications, goes only if we made it and nothing is in it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from headrace.cli.checks.wire import Wire, Wrong
from headrace.client.calls.batches import delete_batch
from headrace.client.calls.queues import delete_queue, get_queue
from headrace.client.calls.service import delete_key, list_keys
from headrace.client.calls.tasks import count_tasks
from headrace.domain.errors import HeadraceError, NotFound

NOTIFICATIONS: Final = "/management/queue/notifications"
SERVICE: Final = "fiware-service"

_TRIES: Final = 3
_BETWEEN: Final = 1.0  # seconds


@dataclass(slots=True)
class Thing(ABC):
    """Something of this name that is to be removed; ``sure`` once the service says it is made."""

    TEXT: ClassVar[str]
    COMMAND: ClassVar[str]

    name: str
    sure: bool = False

    @property
    def text(self) -> str:
        """Its description, for people."""
        return self.TEXT.format(self)

    @property
    def command(self) -> str:
        """The command that removes it by hand."""
        return self.COMMAND.format(self)

    @abstractmethod
    def remove(self, wire: Wire) -> bool:
        """Remove it; False: it must not go yet.  Raises NotFound where it is not there."""


@dataclass(slots=True)
class OurQueue(Thing):
    """A queue under a name of our own."""

    TEXT = "queue {0.name}"
    COMMAND = "headrace queue delete {0.name} --yes"

    def remove(self, wire: Wire) -> bool:
        """Delete it with all that is in it."""
        wire.send(delete_queue(self.name))
        return True


@dataclass(slots=True)
class OurBatch(Thing):
    """A batch under a name of our own."""

    TEXT = "batch {0.name}"
    COMMAND = "headrace batch delete {0.name} --yes"

    def remove(self, wire: Wire) -> bool:
        """Forget it."""
        wire.send(delete_batch(self.name))
        return True


@dataclass(slots=True)
class SharedQueue(OurQueue):
    """A queue under a name that is everybody's; its description says that it is ours."""

    TEXT = "queue {0.name}, if nobody else uses it"
    COMMAND = "headrace queue delete {0.name}"  # which shows what is in it, and asks

    description: str = ""

    def remove(self, wire: Wire) -> bool:
        """Delete it if nothing is in it."""
        if wire.send(get_queue(self.name)).description != self.description:
            raise NotFound(f"queue {self.name} is another's")
        empty = wire.send(count_tasks(self.name).at(None)).count == 0
        return empty and OurQueue.remove(self, wire)


@dataclass(slots=True)
class Notifications(Thing):
    """Notifications that came with a FIWARE service of our own."""

    TEXT = f"notifications of {SERVICE} {{0.name}}"
    COMMAND = f"headrace task delete --queue {{0.queue}} --tag {SERVICE}={{0.name}} --yes"

    queue: str = "ngsi.notify"

    def remove(self, wire: Wire) -> bool:
        """Delete them until none is left."""
        wire.accepted(wire.ask("DELETE", NOTIFICATIONS, headers={SERVICE: self.name}))
        return wire.send(count_tasks(self.queue, tags={SERVICE: self.name}).at(None)).count == 0


@dataclass(slots=True)
class OurKey(Thing):
    """A key under a name of our own; ``id`` is None until the service has returned it."""

    TEXT = "key {0.name}"

    id: str | None = None

    @property
    def command(self) -> str:
        """The command that removes it by hand."""
        if self.id is None:
            return f"headrace key list, and headrace key revoke with the id of {self.name}"
        return f"headrace key revoke {self.id} --yes"

    def remove(self, wire: Wire) -> bool:
        """Revoke it."""
        self.id = self.id or self._found(wire)
        wire.send(delete_key(self.id))
        return True

    def _found(self, wire: Wire) -> str:
        """Return the id of the key of this name, of which one lives at most.  Raises NotFound."""
        found = next((key.id for key in wire.each(list_keys()) if key.name == self.name), None)
        if found is None:
            raise NotFound(f"there is no key {self.name}")
        return found


T = TypeVar("T", bound=Thing)


@dataclass(slots=True)
class Made:
    """The things to remove, the latest first: that is the order in which they can go."""

    wire: Wire
    pause: Callable[[float], None]
    things: list[Thing] = field(default_factory=list)

    def begin(self, thing: T) -> T:
        """Note what is about to be made."""
        self.things.insert(0, thing)
        return thing

    def gone(self, thing: Thing) -> None:
        """Note that something is not there any more."""
        self.things.remove(thing)

    def remove(self) -> None:
        """Remove all; what could not be removed stays in ``things``."""
        silent = 0
        for thing in self.things.copy():
            for left in reversed(range(_TRIES)):
                if self._removed(thing, last=not left):
                    self.gone(thing)
                    break
                silent = silent + 1 if self.wire.last.status is None else 0
                if silent == _TRIES:
                    return  # nobody answers, and each try may take half a minute
                if left:
                    self.pause(_BETWEEN)

    def _removed(self, thing: Thing, *, last: bool) -> bool:
        """Try once to remove *thing*; tell whether it is gone."""
        try:
            return thing.remove(self.wire)
        except NotFound:
            return thing.sure or last  # what was cut off on its way may yet arrive
        except (HeadraceError, Wrong):
            return False
