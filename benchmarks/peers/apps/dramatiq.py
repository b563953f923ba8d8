"""Dramatiq on Redis, with the middleware that it brings by default."""

import os
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.stamp import stamp

broker = RedisBroker(url=os.environ["PEERS_BROKER"])
dramatiq.set_broker(broker)

noop = dramatiq.actor(stamp, queue_name="bench")


def prepare() -> None:
    """Do nothing: a queue is there as soon as it is used."""


def enqueue(numbers: Iterable[int]) -> None:
    for number in numbers:
        noop.send(number)
