"""The secrets that sign requests to push targets, derived from one secret of the stack."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.domain.push_messages import OVERLAP, derived_secret, signing_generations
from headrace.domain.queue import Queue
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.stack_secret import SIGNING, StackSecret

if TYPE_CHECKING:
    from headrace.runtime.service import Service


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


class Signing(ServicePart):
    """The use case, with what it needs from outside."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.stack: StackSecret = StackSecret(service.store, SIGNING)

    def of(self, queue: Queue) -> SigningSecrets:
        """Return what signs the requests of *queue* now."""
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
