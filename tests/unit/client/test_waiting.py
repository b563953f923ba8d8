"""When a task that has not ended is looked at again, and what its end comes to."""

import pytest

from headrace.client.calls.waiting import LookPace, NextLook, TaskLook, if_kept, result_of
from headrace.domain.errors import InvalidRequest, NotFound, TaskDead
from headrace.wire.tasks import Task
from tests.unit.app.app_doubles import AT, leased

FREE, PAID = 0.02, 1.0  # seconds after which services say to ask again


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def look(poll_after: float) -> TaskLook:
    task: Task = leased()
    return TaskLook(task, poll_after)


def walked(pace: LookPace, clock: Clock, poll_after: float, *, most: int = 50) -> list[NextLook]:
    """Go through the looks at a service that answers as late as it may."""
    steps: list[NextLook] = []
    while len(steps) < most and (step := pace.after(look(poll_after))) is not None:
        clock.now += step.rest + step.wait
        steps.append(step)
    return steps


def test_a_service_that_waits_for_nothing_is_let_wait() -> None:
    clock = Clock()

    steps = walked(LookPace(45, turn=20, clock=clock), clock, FREE)

    assert steps == [NextLook(0, 20), NextLook(0, 20), NextLook(0, 5)]


def test_one_that_is_paid_for_while_it_waits_is_asked_again_ever_later() -> None:
    clock = Clock()

    steps = walked(LookPace(60, clock=clock), clock, PAID)

    assert [step.rest for step in steps[:6]] == [1, 1.5, 2.25, 3.375, 5, 5]
    assert {step.wait for step in steps} == {0}
    assert sum(step.rest for step in steps) == 60


def test_without_a_timeout_there_is_no_end() -> None:
    clock = Clock()

    assert len(walked(LookPace(None, clock=clock), clock, PAID)) == 50


def test_one_look_there_is_in_no_time_at_all() -> None:
    assert LookPace(0, clock=Clock()).after(look(FREE)) is None


def test_a_service_that_answers_too_early_is_not_asked_without_rest() -> None:
    clock = Clock()
    pace = LookPace(10, clock=clock)

    steps = [pace.after(look(FREE)) for _ in range(3)]  # as one that is about to stop

    assert [step.rest if step else None for step in steps] == [0, 0.1, 0.1]


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        LookPace(timeout)


def test_the_error_of_a_dead_task_has_its_reason_and_its_latest_error() -> None:
    error = {"at": AT, "worker": None, "kind": "failed", "type": "ValueError", "detail": "…"}
    errors = [{**error, "attempt": n, "message": f"no {n}"} for n in (1, 2)]
    dead = leased(state="DEAD", status="DEAD", dead_reason="exhausted", errors=errors, attempts=2)

    with pytest.raises(TaskDead) as raised:
        result_of(dead)

    text = "task tsk_1 of mail is dead (exhausted), attempt 2: ValueError: no 2"
    assert raised.value.detail == text
    assert raised.value.task is dead


def test_a_task_that_was_never_delivered_has_no_error_to_show() -> None:
    dead = leased(state="DEAD", status="DEAD", dead_reason="expired", attempts=0)

    with pytest.raises(TaskDead, match=r"is dead \(expired\), never delivered$"):
        result_of(dead)


def test_what_is_missing_behind_an_enqueue_was_not_kept_or_deleted() -> None:
    with pytest.raises(NotFound, match="history_retention_in_seconds"), if_kept("tsk_1"):
        raise NotFound("there is no task tsk_1")
