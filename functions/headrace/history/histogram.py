"""Durations counted in buckets that grow by 5 %: small, mergeable, good for percentiles.

Bucket ``n`` holds what is more than 1.05^(n-1) and at most 1.05^n microseconds, bucket -1 what took
no time at all.  A percentile is given as the middle of its bucket, so it is at most 2.5 % off,
however many histograms were merged and in whatever order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

RATIO: Final = 1.05
_PER_NATURAL: Final = 1 / math.log(RATIO)
_MIDDLE: Final = 2 / (RATIO + 1)  # of a bucket, as a share of its upper end: equally far from both
_NO_TIME: Final = -1
_MICROS: Final = 1_000_000


def bucket_of(micros: int) -> int:
    """Return the bucket of a duration; one that a wrong clock made negative counts as none."""
    return math.ceil(math.log(micros) * _PER_NATURAL) if micros > 0 else _NO_TIME


@dataclass(slots=True)
class Histogram:
    """How many durations fell into each bucket."""

    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, micros: int) -> None:
        """Count one duration, in microseconds."""
        bucket = bucket_of(micros)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        """Count everything that *other* has counted."""
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.buckets.values())

    def percentile(self, share: float) -> float | None:
        """Return the duration, in seconds, that *share* (0 to 1) of all do not exceed.

        None when nothing was counted.
        """
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return 0.0 if bucket == _NO_TIME else RATIO**bucket * _MIDDLE / _MICROS
        return None

    def packed(self) -> list[int]:
        """Return it as a short list: for each bucket its distance to the one before, its number."""
        numbers: list[int] = []
        before = 0
        for bucket in sorted(self.buckets):
            numbers += (bucket - before, self.buckets[bucket])
            before = bucket
        return numbers

    @classmethod
    def unpacked(cls, numbers: Sequence[int]) -> "Histogram":
        """Return the histogram that packed() wrote."""
        buckets = {}
        bucket = 0
        for distance, number in _pairs(numbers):
            bucket += distance
            buckets[bucket] = number
        return cls(buckets)


def _pairs(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
