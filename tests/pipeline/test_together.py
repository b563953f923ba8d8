"""Several stations in one process: what they do together, without a Spark to do it on."""

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import NotFound
from headrace.spark.stations.figures import Batch, Run
from headrace.spark.stations.station import Station
from headrace.spark.stations.together import run_together


class Pools:
    """A Spark that knows which pool each thread has chosen, and no more."""

    def __init__(self) -> None:
        self.chosen: list[str] = []
        self.sparkContext = SimpleNamespace(setLocalProperty=self._set)

    def _set(self, _: str, pool: str) -> None:
        self.chosen.append(pool)


def one(run: Callable[..., Run]) -> Station:
    return cast("Station", SimpleNamespace(run=run))


def moving(source: Counter[str], name: str, to: str) -> Station:
    """A station that moves all that is due, a batch at a time, and then ends."""

    def run(_: object, *, on_batch: Callable[[Batch], None], **__: Any) -> Run:
        done = Run()
        while source[name]:
            number, source[name] = source[name], 0
            source[to] += number
            batch = Batch(done.batches + 1, 1.0, {"moved": number})
            done.add(batch)
            on_batch(batch)
        return done.ended("drained")

    return one(run)


def test_a_drain_of_several_ends_when_none_of_them_finds_anything() -> None:
    tasks = Counter({"a": 30})
    spark, seen = Pools(), Counter[str]()
    stations = {name: moving(tasks, name, to) for name, to in (("c", "d"), ("b", "c"), ("a", "b"))}

    runs = run_together(
        stations,
        cast("SparkSession", spark),
        drain=True,
        on_batch=lambda name, batch: seen.update({name: batch.tasks}),
    )

    assert tasks == {"a": 0, "b": 0, "c": 0, "d": 30}
    assert {name: run.counts["moved"] for name, run in runs.items()} == {"a": 30, "b": 30, "c": 30}
    assert seen == {"a": 30, "b": 30, "c": 30}
    assert set(spark.chosen) == {"a", "b", "c"}


def test_the_first_that_fails_stops_the_others_and_is_told() -> None:
    stop = threading.Event()

    def until_told(_: object, *, stop: threading.Event, **__: Any) -> Run:
        assert stop.wait(60)
        return Run().ended("stopped")

    def missing(*_: object, **__: Any) -> Run:
        raise NotFound("there is no queue b")

    with pytest.raises(NotFound, match="no queue b"):
        run_together(
            {"a": one(until_told), "b": one(missing)}, cast("SparkSession", Pools()), stop=stop
        )

    assert stop.is_set()
