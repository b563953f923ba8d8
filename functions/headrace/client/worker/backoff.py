"""How long to wait while something does not work."""

import random
from typing import Final

_FIRST: Final = 0.1


class CallBackoff:
    """Waits that double, at random between half and all, up to *most* seconds."""

    def __init__(self, most: float, chance: random.Random) -> None:
        self._most, self._chance = most, chance
        self.failures = 0

    def failed(self) -> float:
        """Note a failure and return the seconds to wait."""
        longest = min(self._most, _FIRST * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return longest * self._chance.uniform(0.5, 1.0)

    def worked(self) -> int:
        """Note a success and return how many failures went before it."""
        failures, self.failures = self.failures, 0
        return failures
