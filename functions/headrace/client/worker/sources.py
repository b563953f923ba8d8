"""Which queues to poll in one call, in which order, and when: by weight or strictly, with pauses.

While nothing comes all queues are asked together, once the first of their pauses is over: one call
costs more than to look at a few more queues.  While tasks come, those that were found empty are
left out until their pause is over.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.client.models import Dequeued
from headrace.client.worker.backoff import CallBackoff
from headrace.domain.limits import DEQUEUE_QUEUES

_GROWTH: Final = 5
"""How many times its pause an empty queue is left alone, in the end."""

_STEADY_SECONDS: Final = 5.0
"""A pause of this length does not grow: so long the service only says of paused queues."""

_LEAST_SECONDS: Final = 0.005
_LONGEST_REFUSED: Final = 60.0
_TOGETHER: Final = DEQUEUE_QUEUES[1]


class Source:
    """A queue that tasks are taken from, and when it may be polled again (monotonic seconds)."""

    def __init__(self, queue: str, weight: float, chance: random.Random) -> None:
        self.queue, self.weight = queue, weight
        self.next_at = self.refused_until = 0.0
        self.empty_since: float | None = None  # when it was polled, found empty since
        self.refusals = CallBackoff(_LONGEST_REFUSED, chance)
        self._chance = chance
        self.poll_after: float | None = None  # from the service, and how often in a row
        self.times = 0

    def gave(self) -> None:
        """Note that tasks came: it is polled again at once."""
        self.next_at, self.empty_since = 0.0, None
        self.poll_after, self.times = None, 0

    def had_nothing(self, poll_after_seconds: float, now: float, *, sent_at: float) -> None:
        """Note an empty answer, to the request of *sent_at*, with the time to poll again.

        While the service keeps saying the same the pause doubles, up to five times what it says.
        One cut short, because a task is due before, never says the same twice and is obeyed.
        """
        self.empty_since = sent_at
        self.times = self.times + 1 if poll_after_seconds == self.poll_after else 0
        self.poll_after = poll_after_seconds
        pause = poll_after_seconds
        if self.times and pause < _STEADY_SECONDS:
            grown = pause * min(2**self.times, _GROWTH)
            pause = self._chance.uniform(pause, grown)
        self.next_at = now + max(_LEAST_SECONDS, pause * self._chance.uniform(1.0, 1.05))

    def rests_with(self, other: "Source") -> None:
        """Be polled again when *other* is, which was found empty by the same call."""
        self.empty_since, self.next_at = other.empty_since, other.next_at
        self.poll_after, self.times = other.poll_after, other.times

    def refused(self, now: float) -> None:
        """Note that the service would not answer; it is left alone for longer each time."""
        self.refused_until = now + self.refusals.failed()
        self.empty_since = None

    @property
    def open_at(self) -> float:
        """When it may be polled."""
        return max(self.next_at, self.refused_until)


class Sources:
    """The queues of a worker."""

    def __init__(
        self, weights: Mapping[str, float], *, strict: bool, chance: random.Random
    ) -> None:
        self.all = [Source(queue, weight, chance) for queue, weight in weights.items()]
        self._strict, self._chance = strict, chance
        self._idle = True  # whether the latest answer was empty

    def next(self, now: float) -> list[Source]:
        """The queues to poll in one call, in order; none of them: none yet."""
        able = [source for source in self.all if source.refused_until <= now]
        open_now = [source for source in able if source.next_at <= now]
        if not open_now:
            return []
        candidates = able if self._idle and len(able) <= _TOGETHER else open_now
        return (candidates if self._strict else self._drawn(candidates))[:_TOGETHER]

    def _drawn(self, sources: Sequence[Source]) -> list[Source]:
        """Draw an order: which is the first is decided by the weights, so is the next, and so on.

        Each draws a time of arrival, the sooner the more weight it has.
        """
        return sorted(sources, key=lambda source: self._chance.expovariate(source.weight))

    def answered(
        self,
        candidates: Sequence[Source],
        found: Dequeued,
        wanted: int,
        now: float,
        *,
        sent_at: float,
    ) -> None:
        """Note what the queues *candidates* gave, of *wanted* tasks at the most."""
        gave = {task.queue for task in found.tasks}
        self._idle = not gave
        looked_at = list(candidates)
        if len(found.tasks) >= wanted:  # those behind the last one that gave were not looked at
            while looked_at and looked_at[-1].queue not in gave:
                looked_at.pop()
        empty = [source for source in looked_at if source.queue not in gave]
        for source in looked_at:
            source.refusals.worked()
            if source.queue in gave:
                source.gave()
        for source in empty if gave else ():
            source.had_nothing(found.poll_after_seconds, now, sent_at=sent_at)
        if not gave and empty:
            first = min(empty, key=lambda source: source.times)
            first.had_nothing(found.poll_after_seconds, now, sent_at=sent_at)
            for source in empty:
                source.rests_with(first)

    def rest(self, now: float) -> float:
        """Return the seconds until the first pause is over."""
        return max(0.0, min(source.open_at for source in self.all) - now)

    def drained(self, since: float) -> bool:
        """Whether each of them was found empty when it was polled after *since*."""
        return all(
            source.empty_since is not None and source.empty_since >= since for source in self.all
        )
