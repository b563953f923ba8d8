"""A lake in a format with a log: the same tables, whoever is killed, and strangers read them."""

import dataclasses
from collections.abc import Collection, Sequence
from datetime import date, datetime
from pathlib import Path

import pytest

from headrace.domain.errors import Conflict
from headrace.spark.lake.formats import log_of
from headrace.spark.lake.formats.base import DataFile, TableLog
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import compact, rollup
from headrace.spark.lake.schemas import CHANGES, TABLES, TASKS, Table
from tests.pipeline.stories import Story, write

TODAY = date(2026, 11, 21)


class Killed(Exception):
    """The end of a process."""


class Deadly:
    """A log that ends the process where it would commit a table."""

    def __init__(self, log: TableLog, table: str) -> None:
        self.log = log
        self.table = table

    def pinned(self) -> TableLog:
        return Deadly(self.log.pinned(), self.table)

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        return self.log.files(table, since)

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        assert all(Path(file.path).exists() for file in new)
        if table.name == self.table:
            raise Killed
        self.log.replace(table, old, new)

    def unneeded(self, table: Table, before: datetime, files: Collection[str]) -> set[str]:
        return self.log.unneeded(table, before, files)


def told() -> Story:
    """Tell of a task that succeeds in the first hour, and of one that waits."""
    story = Story()
    story.enqueue("t1")
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED")
    story.enqueue("t2")
    return story


def everything(lake: LakeFrames) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, lake.read(table).collect())) for table in TABLES}


@pytest.mark.slow  # five rollups
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_the_tables_are_the_same_in_every_format_whoever_is_killed(
    lake: LakeFrames, tmp_path: Path, form: str
) -> None:
    plain = dataclasses.replace(lake, address=str(tmp_path / "plain"))
    story = told()
    for one in (lake, plain):
        write(one.files, story.lines)
    rollup(lake, today=TODAY, form=form)
    before = everything(lake)
    assert before["tasks"]

    story.wait(3600)  # in another hour
    story.dequeue("t2")
    story.report("t2", "succeed", "SUCCEEDED")
    for one in (lake, plain):
        write(one.files, story.lines)
    log = log_of("iceberg" if form == "iceberg" else "delta", lake.address)
    assert log is not None
    with pytest.raises(Killed):
        rollup(dataclasses.replace(lake, held=Deadly(log, CHANGES.name)), today=TODAY)
    assert everything(lake) == before

    late = lake.during(lambda: None)  # heard of nothing since, and comes back
    rollup(lake, today=TODAY)
    rollup(plain, today=TODAY)
    after = everything(plain)
    assert everything(lake) == after
    with pytest.raises(Conflict, match="another job has written the table tasks"):
        late.write(late.read(TASKS), TASKS, [TODAY])
    (done,) = [one for one in compact(lake) if one.table == CHANGES.name]
    assert (done.days, done.files_after) == (1, 1)
    assert everything(lake) == after
    assert proof(lake).holds
