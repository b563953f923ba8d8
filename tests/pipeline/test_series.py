"""What rollup publishes is what the service itself showed while it still had it."""

import dataclasses
from datetime import date, timedelta
from functools import partial

import pytest
from pyspark.sql import SparkSession

from headrace.domain.transitions import Event
from headrace.history.series import (
    SPAN,
    MetricPoint,
    Span,
    content_in,
    file_of,
    happened,
    minute_of,
)
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import rollup
from tests.pipeline.harness import Again
from tests.pipeline.stories import DAY, SECOND, Story, at, true_history, write

FIRST = date(2026, 11, 21)
TODAY = FIRST + timedelta(days=2)
TOMORROW = TODAY + timedelta(days=1)


def files(lake: LakeFrames) -> dict[str, bytes | None]:
    return {file.name: lake.files.get(file.name) for file in lake.files.list("series/")}


def a_story(queue: str = "mail") -> Story:
    story = Story(queue)
    story.enqueue("t1")
    story.wait(90).dequeue("t1")
    story.wait(4).report("t1", "succeed", "SUCCEEDED")
    story.wait(2 * DAY / SECOND).enqueue("t2")
    return story


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeFrames:
    """Give the lake of a story that was rolled up while its last day was not over."""
    lake = LakeFrames(spark, str(tmp_path_factory.mktemp("published")))
    write(lake.files, a_story().lines)
    rollup(lake, today=TODAY)
    return lake


def test_a_story_is_published_by_queue_and_day(published: LakeFrames) -> None:
    name = file_of("mail", FIRST)
    assert set(files(published)) == {name, SPAN}  # the other day is not over
    content = content_in(partial(published.files.get, name), "mail")
    found = dict(happened(content or b"", lambda *_: False))
    first = minute_of(FIRST)
    assert {minute - first: one.numbers for minute, one in found.items()} == {
        0: [1, 0, 0, 0, 0, 0],
        1: [0, 1, 1, 0, 0, 0],
    }
    assert [one.backlog for one in found.values()] == [1, -1]
    ran = found[first + 1].run.percentile(0.5)
    assert ran == pytest.approx(5, rel=0.025)  # a second for telling of it, and the four
    assert Span.of(published.files.get(SPAN) or b"") == Span(FIRST, TODAY)


def test_a_run_again_writes_the_same_files_and_a_later_day_leaves_the_others(
    published: LakeFrames, again: Again
) -> None:
    lake, once = again(published), files(published)

    rollup(lake, today=TODAY, everything=True)
    assert files(lake) == once
    story = a_story()
    write(lake.files, [story.wait(DAY / SECOND).enqueue("t3")])
    rollup(lake, today=TOMORROW)

    del once[SPAN]
    assert once.items() <= files(lake).items()
    assert set(files(lake)) - set(once) == {file_of("mail", TODAY), SPAN}
    assert Span.of(files(lake)[SPAN] or b"") == Span(FIRST, TOMORROW)


def test_what_the_service_showed_itself_it_shows_from_the_lake_weeks_later(
    lake: LakeFrames,
) -> None:
    service = true_history(lake.files, seed=7, rounds=40)  # over midnight

    def shown() -> list[MetricPoint]:
        return [
            point
            for queue in ("work", "next")
            for point in service.use_cases.stats.metrics(
                queue, since=at(23), until=at(26), step_seconds=900
            ).points
        ]

    live = shown()
    rollup(lake, today=TOMORROW + timedelta(days=1))
    service.clock.forward(timedelta(days=30))
    old = shown()

    assert sum(point.activity.number(Event.STARTED) for point in live if point.activity) > 10
    assert service.clock.now > at(26)
    for mine, its in zip(live, old, strict=True):
        assert mine.at == its.at
        assert mine.activity is not None
        assert its.activity is not None
        assert its.activity.numbers == mine.activity.numbers
        assert its.activity.backlog == mine.activity.backlog
        assert dataclasses.astuple(its.activity.wait) == dataclasses.astuple(mine.activity.wait)
        assert dataclasses.astuple(its.activity.run) == dataclasses.astuple(mine.activity.run)
