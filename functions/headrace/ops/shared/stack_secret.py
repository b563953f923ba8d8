"""Secrets of the stack, and what is derived from them: task ids and keys that sign push requests.

A secret is created when it is first needed and is stored with the control records, so every
process of the service uses the same one.
"""

import base64
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import structs

from headrace.domain.change import KeyLock
from headrace.domain.errors import Unavailable
from headrace.domain.ids import keyed_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.push_messages import OVERLAP, derived_secret, signing_generations
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.domain.times import EPOCH
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.runtime.service import Service

SIGNING: Final = "signing"
"""The secret that signs requests to push targets."""

IDS: Final = "ids"
"""The secret that ids are derived from; producers with access to the tables may read it too."""

_NAME: Final = "stack"
_BYTES: Final = 32


@dataclass(slots=True, eq=False, repr=False)
class StackSecret:
    """One secret of the stack, of the given *kind*."""

    store: Store
    kind: str
    new_secret: Callable[[], bytes] = field(default=lambda: secrets.token_bytes(_BYTES))
    _value: bytes | None = field(default=None, init=False)

    def value(self) -> bytes:
        """Return the secret; the first process that needs it creates it.  Raises Unavailable."""
        if self._value is None:
            text = self.store.key_lock(self.kind, _NAME)
            if text is None:
                made = base64.b64encode(self.new_secret()).decode()
                self.store.set_key_lock(KeyLock(self.kind, _NAME, made))
                text = self.store.key_lock(self.kind, _NAME) or made
            self._value = base64.b64decode(text)
        return self._value


class DerivedIds(ServicePart):
    """Ids that the service can compute again and that a client cannot predict."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.secret: StackSecret = StackSecret(service.store, IDS)

    def task_id(self, born: datetime, *facts: str | float) -> str:
        """Return the task id that *facts* always give.  It sorts as if made at *born*."""
        return keyed_task_id(self.secret.value(), born, facts)


@dataclass(frozen=True, slots=True)
class SigningSecrets:
    """What signs the requests of one queue, until ``previous_until`` with the one before too."""

    secret: str
    previous: str | None = None
    previous_until: datetime | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """The secrets that sign now."""
        return (self.secret,) if self.previous is None else (self.secret, self.previous)


class Signing(ServicePart):
    """Derives the secrets that sign push requests."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.stack: StackSecret = StackSecret(service.store, SIGNING)

    def of(self, queue: Queue) -> SigningSecrets:
        """Return the secrets that sign requests of *queue* now."""
        stack = self.stack.value()
        made = [
            derived_secret(stack, queue.name, generation, queue.created_at)
            for generation in signing_generations(
                queue.signing_generation, queue.rotated_at, self.now()
            )
        ]
        if len(made) == 1 or queue.rotated_at is None:
            return SigningSecrets(made[0])
        return SigningSecrets(made[0], made[1], queue.rotated_at + OVERLAP)


_LOOKS: Final = 5  # at ids that other tasks hold

_log: Final = logging.getLogger(__name__)


def with_unique_ids(
    store: Store, ids: DerivedIds, wanted: Sequence[tuple[str, TaskSpec]], now: datetime
) -> list[TaskSpec]:
    """Return the tasks *wanted* in their queues, those with ``unique_for`` with their ids.

    The id is derived from the queue, the dedupe key and the window in which the task is due, so
    the same id is found for every task of that window.  If a task that was never in the queue holds
    the id, another id is derived.
    """
    specs = [new for _, new in wanted]
    open_places = [place for place, new in enumerate(specs) if new.unique_for is not None]
    for number in range(_LOOKS):
        if not open_places:
            return specs
        for place in open_places:
            queue, new = wanted[place]
            specs[place] = structs.replace(new, id=_id_of(ids, queue, new, now, number))
        names = [str(specs[place].id) for place in open_places]
        found = {**store.read(names, payload=False), **store.tombstones(names)}
        open_places = [
            place
            for place in open_places
            if (there := found.get(str(specs[place].id))) is not None
            and there.has_id(now)
            and _is_foreign(there, wanted[place][0])
        ]
    raise Unavailable("the ids of unique tasks keep being taken; try again")


def _id_of(ids: DerivedIds, queue: str, new: TaskSpec, now: datetime, number: int) -> str:
    due = new.scheduled_at or now + timedelta(seconds=new.delay_in_seconds or 0)
    seconds = new.unique_for or 1
    start = due - (due - EPOCH) % timedelta(seconds=seconds)
    window = (start - EPOCH) / timedelta(seconds=1)
    return ids.task_id(start, "unique", queue, new.dedupe_key or "", seconds, window, number)


def _is_foreign(there: Task, queue: str) -> bool:
    if there.queue == queue or any(hop.queue == queue for hop in there.trail):
        return False
    _log.error(
        "Task %s in queue %s has the id of a unique task of queue %s."
        " That task is enqueued under another id.",
        there.id,
        there.queue,
        queue,
    )
    return True
