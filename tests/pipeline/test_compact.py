"""Compacting: the same rows in fewer files, whenever it is killed."""

import shutil
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import compact, rollup
from headrace.spark.lake.schemas import CHANGES
from tests.pipeline.harness import Again
from tests.pipeline.stories import Story, write

TODAY = date(2026, 11, 21)
DAY = f"dt={TODAY}"


class CompactKilled(Exception):
    """Stands for a process that ends in the middle."""


@pytest.fixture(scope="module")
def scattered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeFrames:
    """Give a lake with a day in five files."""
    lake = LakeFrames(spark, str(tmp_path_factory.mktemp("scattered")))
    story = Story()
    for number in range(9):
        story.enqueue(f"t{number}")
    write(lake.files, story.lines)
    rollup(lake, today=TODAY)
    lake.write(lake.read(CHANGES).repartition(5), CHANGES, [TODAY])
    return lake


@pytest.fixture
def crowded(scattered: LakeFrames, again: Again) -> LakeFrames:
    return again(scattered)


def rows(lake: LakeFrames) -> list[str]:
    return sorted(str(row) for row in lake.read(CHANGES).collect())


def place(lake: LakeFrames) -> Path:
    return Path(lake.path("tables", CHANGES.name, DAY))


def test_there_are_fewer_files_and_the_same_rows(crowded: LakeFrames) -> None:
    before = rows(crowded)

    done = {one.table: one for one in compact(crowded)}

    changes = done["changes"]
    assert (changes.days, changes.files_before, changes.files_after) == (1, 5, 1)
    assert rows(crowded) == before
    assert compact(crowded) == []


def test_a_day_that_was_removed_and_not_yet_replaced_is_put_back_by_the_next_job(
    crowded: LakeFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(crowded)

    def killed(self: LakeFrames, *_given: object) -> None:
        shutil.rmtree(place(self))
        place(self).parent.joinpath(".spark-staging-1").mkdir()
        raise CompactKilled

    with monkeypatch.context() as patched:
        patched.setattr(LakeFrames, "write", killed)
        with pytest.raises(CompactKilled):
            compact(crowded)
    assert rows(crowded) == []

    rollup(crowded, today=TODAY)

    assert rows(crowded) == before
    assert len(list(place(crowded).glob("*.parquet"))) == 1
    assert not any(place(crowded).parent.glob(".spark-staging-*"))
    assert not any(Path(crowded.path("state", "compact")).rglob("*.parquet"))
