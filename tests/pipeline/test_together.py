"""Several stations in one process: what they do together, without a Spark to do it on."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import NotFound
from headrace.spark.stations.figures import Run
from headrace.spark.stations.station import Station
from headrace.spark.stations.together import run_together

SPARK = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=print)))


def one(run: Callable[..., Run]) -> Station:
    return cast("Station", SimpleNamespace(run=run))


def test_the_first_that_fails_stops_the_others_and_is_told() -> None:
    stop = threading.Event()

    def until_told(_: object, *, stop: threading.Event, **__: Any) -> Run:
        assert stop.wait(60)
        return Run().ended("stopped")

    def missing(*_: object, **__: Any) -> Run:
        raise NotFound("there is no queue b")

    with pytest.raises(NotFound, match="no queue b"):
        run_together({"a": one(until_told), "b": one(missing)}, SPARK, stop=stop)

    assert stop.is_set()
