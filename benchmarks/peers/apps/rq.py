"""RQ: both its workers, the one that forks for each job and the simple one, run the same jobs."""

import os
from collections.abc import Iterable

from redis import Redis
from rq import Queue

from benchmarks.peers.stamp import stamp

queue = Queue("bench", connection=Redis.from_url(os.environ["PEERS_BROKER"]))


def prepare() -> None:
    """Do nothing: a queue is there as soon as it is used."""


def enqueue(numbers: Iterable[int]) -> None:
    queue.enqueue_many([Queue.prepare_data(stamp, (number,)) for number in numbers])
