"""`unique_for`: at most one task of a key in each window of time, even after it has ended."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from headrace import App, InvalidRequest
from headrace.testing import MemoryService

HOUR = 3600


def send(to: str, note: str = "") -> str:
    return to


def outcome(task: Any, *args: Any, **kwargs: Any) -> str:
    return str(task.enqueue(*args, **kwargs).outcome)


STEPS = ("enqueue", "finish", "wait")


def test_in_every_order_of_enqueueing_finishing_and_waiting_one_window_has_one_task(
    service: MemoryService,
) -> None:
    """Compare every order of three steps with what the guide says."""
    app = App()
    task = app.task(unique_for=HOUR)(send)
    with service.serving(app):
        for place, steps in enumerate(product(STEPS, repeat=3)):
            to, alive, taken = str(place), False, set[int]()
            for step in steps:
                if step == "wait":
                    service.clock.forward(HOUR / 2)
                elif step == "finish":
                    service.work(app).run()
                    alive = False
                else:
                    window = int(service.clock.now.timestamp()) // HOUR
                    expected = "DUPLICATE" if alive else "CREATED"
                    if window in taken:
                        expected = "EXISTING"
                    assert outcome(task, to) == expected, steps
                    if expected == "CREATED":
                        alive = True
                        taken.add(window)


def test_the_key_is_the_declared_one_the_chosen_one_or_all_arguments() -> None:
    app = App()

    def sent(task: Any, *args: str) -> tuple[Any, ...]:
        made = task.prepare(*args).task
        return made.id, made.dedupe_key, made.unique_for_seconds

    by_all = app.task(name="all", unique_for=60)(send)
    by_one = app.task(name="one", dedupe_key="{to}", unique_for=60)(send)
    optional = app.task(name="maybe", dedupe_key=lambda to: to or None, unique_for=60)(send)

    assert sent(by_one, "a", "x") == sent(by_one, "a", "y") == (None, "a", 60)
    assert sent(by_all, "a", "x") != sent(by_all, "a", "y")
    assert sent(by_one.options(dedupe_key="k"), "a") == (None, "k", 60)
    assert sent(optional, "")[1:] == (None, None)  # a call without a key is not held back


def test_a_window_excludes_an_id_and_is_no_longer_than_finished_tasks_are_known() -> None:
    app = App(url="http://127.0.0.1:9", key="k")
    task = app.task(queue="mail", unique_for=timedelta(days=2))(send)
    with pytest.raises(InvalidRequest, match=r"^id and unique_for exclude each other"):
        task.options(id="mine")
    with pytest.raises(InvalidRequest) as refused:
        task.enqueue("a")
    assert str(refused.value) == (
        "unique_for must be at most 86400 s, as long as queue mail knows finished tasks, "
        "not 172800: declare app.queue('mail', history_retention_in_seconds=172800)"
    )
    app.queue("mail", history_retention_in_seconds=172_800)
    assert task.prepare("a").task.unique_for_seconds == 172_800
