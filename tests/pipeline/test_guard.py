"""A guarded function: whatever it returns or raises for one task is that task's row only."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from headrace.spark.sources.leasing import ARROW
from headrace.spark.sources.rows import report_of, rows_of
from headrace.spark.stations.outcomes import (
    Fail,
    Move,
    Outcome,
    Retry,
    Succeed,
    Taken,
    guard,
)

NOW = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
SURROGATE = "\ud800"


class Frame:
    """A frame of two tasks, whose payloads are 0 and 1."""

    def mapInArrow(  # noqa: N802 (Spark's)
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str
    ) -> list[pa.RecordBatch]:
        tasks: list[dict[str, Any]] = [
            {
                "id": f"t{n}",
                "lease": f"lse_{n}",
                "queue": "in",
                "payload": str(n),
                "tags": [],
                "attempts": 1,
                "created_at": NOW,
                "scheduled_at": NOW,
                "expires_at": None,
                "priority": "low",
                "group_key": "acme",
            }
            for n in range(2)
        ]
        return list(function([pa.RecordBatch.from_pylist(tasks, schema=ARROW)]))


def made(one: Callable[[], Any], **how: Any) -> dict[str, Any]:
    """Return the row of a task for which *one* is called; another one has succeeded."""

    @guard(**how)
    def function(task: Taken) -> Outcome:
        return cast("Outcome", one()) if task.payload == 0 else Succeed()

    batches = cast("list[pa.RecordBatch]", function(cast("DataFrame", Frame())))
    first, second = (row for batch in batches for row in batch.to_pylist())
    assert (second["id"], second["action"]) == ("t1", "succeed")
    assert all(report_of([row], to="out") for row in rows_of(batches, "succeed"))
    return cast("dict[str, Any]", first)


@dataclass(frozen=True)
class Foreign:
    """An outcome of somebody else's making, about another task."""

    def row(self) -> dict[str, Any]:
        return {"id": "t1", "lease": "lse_1", "action": "succeed"}


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Fail(cast("str", 5)), "TypeError: Fail.error must be text, not int"),
        (
            Move(delay_seconds=cast("float", "x")),
            "TypeError: Move.delay_seconds must be a number of seconds, not str",
        ),
        (Move(delay_seconds=10**400), "OverflowError: "),
        (Move(SURROGATE), "ValueError: Move.payload must be text that UTF-8 can say"),
        (Move(to_queue=SURROGATE), "ValueError: Move.to_queue must be text that UTF-8 can say"),
        (Move(float("nan")), "ValueError: "),
        (Move({1, 2}), "TypeError: "),
        (7, "TypeError: a guarded function returns outcomes"),
        ([Succeed(), Fail(cast("str", 5))], "TypeError: Fail.error must be text"),
    ],
)
@pytest.mark.gate
def test_an_outcome_that_no_row_can_be_made_of_ends_its_task_with_the_reason(
    outcome: Any, message: str
) -> None:
    row = made(lambda: outcome, retry_on=(Exception,))

    assert (row["id"], row["action"]) == ("t0", "fail")
    assert row["error"].startswith(message)


@pytest.mark.parametrize("outcome", [Fail, Retry])
def test_text_of_an_error_that_utf8_cannot_say_is_escaped(outcome: Callable[[str], Any]) -> None:
    assert made(lambda: outcome(f"bad {SURROGATE}"))["error"] == r"bad \ud800"


def test_what_a_function_raises_is_told_even_where_it_cannot_be_said() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def raising(error: Exception) -> Any:
        raise error

    spoken = made(lambda: raising(ValueError(SURROGATE)))
    mute = made(lambda: raising(Mute()), retry_on=(Mute,))

    assert (spoken["action"], spoken["error"]) == ("fail", r"ValueError: \ud800")
    assert (mute["action"], mute["error"]) == ("retry", "Mute")


def test_an_outcome_speaks_of_no_other_task() -> None:
    assert made(Foreign)["id"] == "t0"
