"""Headrace: the local service with its data on disk, the SDK's App and its worker."""

from collections.abc import Iterable

from benchmarks.peers.stamp import stamp
from headrace import App

app = App(queue="bench")


@app.task
def noop(number: int) -> None:
    stamp(number)


def prepare() -> None:
    """Do nothing: the first enqueue makes the queue."""


def enqueue(numbers: Iterable[int]) -> None:
    noop.enqueue_many({"number": number} for number in numbers)
