"""A lake in a format with a log: the same tables as in Parquet, and a late writer is refused."""

import dataclasses
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from headrace.domain.errors import Conflict
from headrace.spark.lake.formats import Format
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import compact, rollup
from headrace.spark.lake.schemas import CHANGES, TABLES, TASKS
from tests.pipeline.stories import Story, write

TODAY = date(2026, 11, 21)


def everything(lake: LakeFrames) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, lake.read(table).collect())) for table in TABLES}


@pytest.mark.slow  # three rollups
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_the_tables_are_the_same_in_every_format(
    lake: LakeFrames, tmp_path: Path, form: str
) -> None:
    plain = dataclasses.replace(lake, address=str(tmp_path / "plain"))
    story = Story()
    story.enqueue("t1")
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED")
    story.enqueue("t2")
    write(lake.files, story.lines)
    rollup(lake, today=TODAY, form=cast("Format", form))
    late = lake.during(lambda: None)  # does not see what is written next
    story.wait(3600)
    story.dequeue("t2")
    story.report("t2", "succeed", "SUCCEEDED")
    for one in (lake, plain):
        write(one.files, story.lines)
        rollup(one, today=TODAY)

    assert everything(lake) == everything(plain)
    with pytest.raises(Conflict, match="another job has written the table tasks"):
        late.write(late.read(TASKS), TASKS, [TODAY])
    (done,) = [one for one in compact(lake) if one.table == CHANGES.name]
    assert (done.days, done.files_after) == (1, 1)
    assert everything(lake) == everything(plain)
    assert proof(lake).holds
