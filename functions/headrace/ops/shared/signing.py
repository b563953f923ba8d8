"""The secrets that sign what targets get.

Each is derived from one secret of the whole service, which is made when it is first needed and
kept with the control records: so every process that works for the service signs alike.
"""

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain.change import KeyLock
from headrace.domain.queue import Queue
from headrace.domain.signing import OVERLAP, derived_secret, signing_generations
from headrace.store.base import Store

SIGNING: Final = "signing"
"""The kind under which the secret of the service is kept."""

_NAME: Final = "stack"
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SigningSecrets:
    """What signs the requests of one queue, until ``previous_until`` with the one before too."""

    secret: str
    previous: str | None = None
    previous_until: datetime | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """Those that sign now."""
        return (self.secret,) if self.previous is None else (self.secret, self.previous)


@dataclass(slots=True, eq=False, repr=False)
class Signing:
    """The use case, with what it needs from outside."""

    store: Store
    now: Callable[[], datetime]
    new_secret: Callable[[], bytes] = field(default=lambda: secrets.token_bytes(_BYTES))
    _stack: bytes | None = field(default=None, init=False)

    def of(self, queue: Queue) -> SigningSecrets:
        """Return what signs the requests of *queue* now."""
        stack = self._stack or self._stored()
        made = [
            derived_secret(stack, queue.name, generation)
            for generation in signing_generations(
                queue.signing_generation, queue.rotated_at, self.now()
            )
        ]
        if len(made) == 1 or queue.rotated_at is None:
            return SigningSecrets(made[0])
        return SigningSecrets(made[0], made[1], queue.rotated_at + OVERLAP)

    def _stored(self) -> bytes:
        """Return the secret of the service, made now if there is none; who is first makes it."""
        text = self.store.key_lock(SIGNING, _NAME)
        if text is None:
            made = base64.b64encode(self.new_secret()).decode()
            self.store.set_key_lock(KeyLock(SIGNING, _NAME, made))
            text = self.store.key_lock(SIGNING, _NAME) or made
        self._stack = base64.b64decode(text)
        return self._stack
