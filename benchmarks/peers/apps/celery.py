"""Celery on Redis, which acknowledges a task only when it has run."""

import os
from collections.abc import Iterable

from celery import Celery

from benchmarks.peers.stamp import stamp

app = Celery("bench", broker=os.environ["PEERS_BROKER"])
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True

noop = app.task(stamp, name="noop")


def prepare() -> None:
    """Do nothing: a queue is there as soon as it is used."""


def enqueue(numbers: Iterable[int]) -> None:
    for number in numbers:
        noop.delay(number)
