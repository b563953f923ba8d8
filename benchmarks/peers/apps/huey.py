"""Huey on Redis, whose workers wait for the next task in the broker."""

import os
from collections.abc import Iterable

from huey import RedisHuey

from benchmarks.peers.stamp import stamp

huey = RedisHuey("bench", url=os.environ["PEERS_BROKER"])

noop = huey.task(name="noop")(stamp)


def prepare() -> None:
    """Do nothing: a queue is there as soon as it is used."""


def enqueue(numbers: Iterable[int]) -> None:
    for number in numbers:
        noop(number)
