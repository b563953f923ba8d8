"""One job at a time writes the lake's tables, and the others are told so in a line."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.domain.errors import Conflict
from headrace.domain.offload import LakeObject
from headrace.spark.lake.turn import SILENT, TURN, LakeTurn, turn_of
from headrace.store.lake import FolderLake
from tests.manual_clock import ManualClock


class Interrupted:
    """A lake in which something else happens before the call of a number."""

    def __init__(self, lake: FolderLake, call: int, happens: Callable[[], None]) -> None:
        self.lake, self.left, self.happens = lake, call, happens

    def _count(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.happens()

    def put(self, name: str, content: bytes) -> None:
        self._count()
        self.lake.put(name, content)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        self._count()
        return self.lake.get(name, within)

    def list(self, prefix: str) -> list[LakeObject]:
        return [*self.lake.list(prefix)]


def went_on(*steps: Callable[[], None]) -> bool:
    try:
        for step in steps:
            step()
    except Conflict:
        return False
    return True


@pytest.mark.parametrize("call", range(5))
@pytest.mark.parametrize("silent", [False, True])
def test_of_two_jobs_at_once_one_goes_on_in_whatever_order(
    tmp_path: Path, call: int, *, silent: bool
) -> None:
    """The calls of a job are: it looks, says so, looks again; and looks before it puts a file."""
    lake, clock, second = FolderLake(tmp_path), ManualClock(), list[bool]()
    other = LakeTurn(lake, "rollup", now=clock)

    def happens() -> None:
        if silent:
            clock.forward(SILENT + timedelta(seconds=1))
        second.append(went_on(other.take))

    first = LakeTurn(Interrupted(lake, call, happens), "rollup", now=clock)
    took = went_on(first.take)
    if not second:
        happens()

    ends = [took and went_on(first.check), second[0] and went_on(other.check)]
    assert sum(ends) == 1


def test_who_is_refused_is_told_who_is_at_work_in_a_line(tmp_path: Path) -> None:
    lake = FolderLake(tmp_path)

    with (
        turn_of(lake, "rollup"),
        pytest.raises(Conflict, match=rf"^a rollup is at work [^\n]*process {os.getpid()} [^\n]*$"),
        turn_of(lake, "compaction"),
    ):
        raise AssertionError
    with turn_of(lake, "compaction"):
        assert json.loads(lake.get(TURN) or b"")["job"] == "compaction"
    assert lake.get(TURN) == b"{}"
