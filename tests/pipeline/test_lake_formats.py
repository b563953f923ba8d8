"""A lake in an Iceberg catalog: the same tables as with Delta, and a late writer is refused."""

import dataclasses
from datetime import date
from pathlib import Path

import pytest

from headrace.domain.errors import Conflict
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import EVERY_TABLE, TASKS
from tests.pipeline.stories import Story, write

TODAY = date(2026, 11, 21)


def everything(lake: LakeFrames) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, lake.read(table).collect())) for table in EVERY_TABLE}


@pytest.mark.slow  # four rollups
def test_the_tables_are_the_same_in_both_formats(
    lake: LakeFrames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(lake, address=str(tmp_path / "delta"))
    story = Story()
    story.enqueue("t1")
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED")
    story.enqueue("t2")
    write(other.files, story.lines)
    rollup(other, today=TODAY)
    late = Story()
    late.now = story.now + 3_600_000_000
    late.enqueue("t3")
    write(other.files, late.lines)
    rollup(other, today=TODAY)
    expected = everything(other)

    monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__URI", f"sqlite:///{tmp_path}/catalog.db")
    write(lake.files, story.lines)
    rollup(lake, today=TODAY)
    before = lake.pinned()  # does not see the next commits
    write(lake.files, late.lines)
    rollup(lake, today=TODAY)

    assert lake.files.list("tables/changes/metadata/")
    assert everything(lake) == expected
    with pytest.raises(Conflict, match="another job has written the table tasks"):
        before.write(before.read(TASKS), TASKS, [TODAY])
    assert proof(lake).holds
