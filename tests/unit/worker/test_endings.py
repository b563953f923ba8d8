"""What the log says became of a task that failed."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headrace.client.worker.reporting import came_of, failed, released
from headrace.domain.task import State
from headrace.wire.tasks import Reported
from tests.unit.worker.worker_harness import START, leased


def answer(state: State | None, *, after: float | None = None) -> Reported:
    return Reported(
        task_id="task-1",
        outcome="OK",
        state=state,
        scheduled_at=None if after is None else START + timedelta(seconds=after),
        lease=None,
        spawned=[],
        detail=None,
        now=START,
    )


@pytest.mark.parametrize(
    ("result", "attempts", "retryable", "message"),
    [
        (answer(State.ENQUEUED, after=19.6), 1, True, "; again in 20 s"),
        (answer(State.ENQUEUED, after=1.26), 1, True, "; again in 1.3 s"),
        (answer(State.ENQUEUED, after=-1), 1, True, "; again in 0.0 s"),
        (answer(State.DEAD), 1, False, " and is dead: rejected"),
        (answer(State.DEAD), 6, True, " and is dead: no retries left"),
        (answer(None), 6, True, " and is dead: no retries left"),
        (answer(State.DEAD), 2, True, " and is dead: it expires before its next attempt"),
        (answer(None), 2, True, ""),
    ],
)
def test_a_failure_says_whether_it_is_tried_again(
    result: Reported, attempts: int, message: str, *, retryable: bool
) -> None:
    task = msgspec.structs.replace(leased(), attempts=attempts)

    assert came_of(failed(task, "Boom", "", retryable=retryable), result, task) == message


def test_any_other_end_says_nothing_more() -> None:
    task: Any = leased()

    assert came_of(released(task), answer(State.ENQUEUED, after=0), task) == ""
