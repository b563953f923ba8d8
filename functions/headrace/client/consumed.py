"""The usage of a client: what its calls have cost, as each answer's header says."""

import re
import threading
from dataclasses import dataclass
from typing import Final

HEADER: Final = "X-Consumed-Units"
_UNITS: Final = re.compile(r"w=([0-9.]+), r=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Consumed:
    """Calls that were answered, and the DynamoDB units they took."""

    calls: int = 0
    write_units: float = 0.0
    read_units: float = 0.0

    def __add__(self, other: "Consumed") -> "Consumed":
        """Return both together."""
        return Consumed(
            self.calls + other.calls,
            self.write_units + other.write_units,
            self.read_units + other.read_units,
        )


class Usage:
    """Adds up what calls cost; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._so_far = Consumed()

    @property
    def so_far(self) -> Consumed:
        """The cost of all calls together."""
        return self._so_far

    def add(self, header: str | None) -> None:
        """Note one answer with this X-Consumed-Units; one without counts as a call."""
        found = _UNITS.fullmatch(header or "")
        units = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
        with self._lock:
            self._so_far += Consumed(1, *units)
