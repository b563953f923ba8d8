"""Which queue to ask next, and when: weights or strict order, and pauses of empty queues."""

import random
from collections.abc import Mapping
from typing import Final

from headrace.client.worker.backoff import Backoff

_GROWTH: Final = 5
"""How many times its pause an empty queue is left alone, in the end."""

_STEADY_SECONDS: Final = 5.0
"""A pause of this length does not grow: so long the service only says of paused queues."""

_LEAST_SECONDS: Final = 0.005
_LONGEST_REFUSED: Final = 60.0


class Source:
    """A queue that tasks are taken from, and when it may be asked again (monotonic seconds)."""

    def __init__(self, queue: str, weight: float, chance: random.Random) -> None:
        self.queue, self.weight = queue, weight
        self.next_at = 0.0
        self.empty_since: float | None = None  # when it was asked, found empty since
        self.refusals = Backoff(_LONGEST_REFUSED, chance)
        self._chance = chance
        self._told: float | None = None
        self._times = 0

    def gave(self) -> None:
        """Note that tasks came: it is asked again at once."""
        self.next_at, self.empty_since = 0.0, None
        self._told = None

    def had_nothing(self, poll_after_seconds: float, now: float, *, asked_at: float) -> None:
        """Note an empty answer, to the question of *asked_at*, that said when to ask again.

        While the service keeps saying the same the pause doubles, up to five times what it says.
        One cut short, because a task is due before, never says the same twice and is obeyed.
        """
        self.empty_since = asked_at
        self._times = self._times + 1 if poll_after_seconds == self._told else 0
        self._told = poll_after_seconds
        pause = poll_after_seconds
        if self._times and pause < _STEADY_SECONDS:
            grown = pause * min(2**self._times, _GROWTH)
            pause = self._chance.uniform(pause, grown)
        self.next_at = now + max(_LEAST_SECONDS, pause * self._chance.uniform(1.0, 1.05))

    def refused(self, now: float) -> None:
        """Note that the service would not answer; it is left alone for longer each time."""
        self.next_at = now + self.refusals.failed()
        self.empty_since = None


class Sources:
    """The queues of a worker."""

    def __init__(
        self, weights: Mapping[str, float], *, strict: bool, chance: random.Random
    ) -> None:
        self.all = [Source(queue, weight, chance) for queue, weight in weights.items()]
        self._strict, self._chance = strict, chance

    def next(self, now: float) -> Source | None:
        """Return the queue to ask, of those whose pause is over; None: none yet."""
        open_now = [source for source in self.all if source.next_at <= now]
        if not open_now or self._strict:
            return open_now[0] if open_now else None
        weights = [source.weight for source in open_now]
        return self._chance.choices(open_now, weights)[0]

    def rest(self, now: float) -> float:
        """Return the seconds until the first pause is over."""
        return max(0.0, min(source.next_at for source in self.all) - now)

    def drained(self, since: float) -> bool:
        """Whether each of them was found empty when it was asked after *since*."""
        return all(
            source.empty_since is not None and source.empty_since >= since for source in self.all
        )
