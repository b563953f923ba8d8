"""How many tasks to hold beyond those that run."""

from typing import Final

_AHEAD_SECONDS: Final = 0.5
_MOST: Final = 50
_WEIGHT: Final = 0.1  # of the latest task in the mean


class Prefetch:
    """Prefetches what will start within half a second at the present pace, at most 50 tasks.

    Quick tasks so come in full batches, while long ones are left to other workers.
    """

    def __init__(self, concurrency: int, fixed: int | None = None) -> None:
        """*fixed* is a prefetch that does not adapt."""
        self._concurrency, self._fixed = concurrency, fixed
        self._mean: float | None = None

    def ran(self, seconds: float) -> None:
        """Take in how long a task ran."""
        before = self._mean
        self._mean = seconds if before is None else before + (seconds - before) * _WEIGHT

    @property
    def size(self) -> int:
        """How many tasks to hold beyond those that run."""
        if self._fixed is not None:
            return self._fixed
        if self._mean is None:
            return 0
        starts = self._concurrency * _AHEAD_SECONDS
        return _MOST if self._mean * _MOST <= starts else int(starts / self._mean)
