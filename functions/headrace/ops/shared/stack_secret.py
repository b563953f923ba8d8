"""Secrets of the stack, and the ids that are derived from one of them.

A secret is created when it is first needed and is stored with the control records, so every
process of the service uses the same one.
"""

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain.change import KeyLock
from headrace.domain.ids import keyed_task_id
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
