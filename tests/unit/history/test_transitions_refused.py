"""What the recorder cannot take for a move of a task is refused, and nothing else."""

from typing import Any

import pytest

from headrace.domain.task import State
from headrace.domain.write import TaskWrite
from headrace.history.transitions import Transition, UnreadableImage, transition
from headrace.store.stream import ImageView


def read(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Transition:
    before, after = (None if image is None else ImageView(image) for image in (old, new))
    return transition(TaskWrite(1, 0, before, after))


GOOD = {
    "queue#state": {"S": "mail#INFLIGHT#0"},
    "last_move": {"S": "dequeue"},
    "started_at": {"N": "1795248000000000"},
    "due_at": {"N": "1795248000000000"},
}


def test_the_example_of_the_next_test_can_be_read() -> None:
    assert read(None, GOOD).entered == ("mail", State.INFLIGHT)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"queue#state": {"S": "mail"}},
        {"queue#state": {"S": "mail#LOST#0"}},
        {"queue#state": {"N": "5"}},
        {"queue#state": "mail#INFLIGHT#0"},
        {"queue#state": {"S": None}},
        {"queue#state": {"S": ["a"]}},
        {"started_at": {"N": "soon"}},
        {"started_at": {"N": "1e99"}},
        {"started_at": {"N": "9" * 40}},
        {"started_at": {"N": "-1"}},
        {"due_at": None},
        {"last_move": {"S": "fail"}, "queue#state": {"S": "mail#ENQUEUED#0"}},
        {
            "last_move": {"S": "fail"},
            "queue#state": {"S": "mail#ENQUEUED#0"},
            "errors": {"L": [{"S": "{"}]},
        },
        {
            "last_move": {"S": "fail"},
            "queue#state": {"S": "mail#ENQUEUED#0"},
            "errors": {"L": [{"S": "[]"}]},
        },
    ],
)
def test_what_is_no_image_of_a_task_is_refused(wrong: dict[str, Any]) -> None:
    image = {**GOOD, **wrong} if wrong else {}
    with pytest.raises(UnreadableImage):
        read(GOOD, image)


@pytest.mark.parametrize("old", [{}, {"queue#state": {"S": "mail"}}])
def test_a_removal_of_what_was_no_task_is_refused(old: dict[str, Any]) -> None:
    with pytest.raises(UnreadableImage):
        read(old, None)
