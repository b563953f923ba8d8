"""The last proof of the lake: what it looked at and what it found."""

from dataclasses import dataclass

from headrace.domain.errors import Unavailable
from headrace.history.proof import LATEST, ProofReport
from headrace.store.base import Lake


@dataclass(frozen=True, slots=True)
class Proofs:
    """The use case; ``lake`` is None where there is none."""

    lake: Lake | None

    def latest(self) -> ProofReport | None:
        """Return the last report; None before the first proof, or without a lake.

        Raises Unavailable.
        """
        text = self.lake.get(LATEST) if self.lake is not None else None
        if text is None:
            return None
        try:
            return ProofReport.of(text)
        except ValueError as error:
            message = f"the lake's {LATEST} cannot be read; headrace lake proof writes it anew"
            raise Unavailable(message) from error
