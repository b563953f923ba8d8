"""How a worker asks for tasks: all queues in one call, and again after a lost answer."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.app.app import App
from headrace.client.worker.fetcher import Fetcher
from headrace.client.worker.groups import OpenGroups
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    HeadraceError,
    NotFound,
    RateLimited,
)
from headrace.wire.tasks import Dequeued
from tests.unit.worker.worker_harness import FakeService, Monotonic, dice, heard


class Refusing(FakeService):
    """Refuses some queues, as the service does: naming the first of them in a call."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(monotonic)
        self.refused: dict[str, type[HeadraceError]] = {}
        self.questions = 0

    def dequeue(self, queues: Any, **call: Any) -> Dequeued:
        self.questions += 1
        for place, queue in enumerate(queues):
            if queue in self.refused:
                named = [] if len(queues) == 1 else [FieldError(f"queues[{place}]", "no")]
                raise self.refused[queue]("no", errors=named)
        return super().dequeue(queues, **call)


class FetcherHarness:
    """A fetcher, whose room is three tasks, and what it stands on."""

    def __init__(self, *queues: str, grouped: bool = False) -> None:
        self.monotonic = Monotonic()
        self.service = Refusing(self.monotonic)
        self.fatal: list[Exception] = []
        self.fetched: list[str] = []
        app = App()
        app.handler(queue="mail")(lambda payload: None)
        self.fetcher = Fetcher(
            self.service,
            heard(self.monotonic),
            WorkerSettings.of(queues or ("mail",), strict=True, concurrency=3),
            app,
            chance=dice(),
            groups=OpenGroups(self.service, self.monotonic, keepalive=60) if grouped else None,
        )
        self.step()

    def step(self) -> float:
        """Try once; return the seconds until the next try."""
        fetched = self.fetcher.fetch(room=3)
        assert fetched is not None
        self.fetched += [task.id for task in fetched.tasks]
        if fetched.fatal is not None:
            self.fatal.append(fetched.fatal)
        return fetched.rest

    def ask(self) -> None:
        """Take steps, each once its time has come, until a question is asked."""
        before = self.service.questions
        for _ in range(5):
            wait = self.step()
            if self.service.questions > before:
                break
            self.monotonic.forward(min(wait, 10))


def test_all_queues_are_asked_in_one_call() -> None:
    harness = FetcherHarness("urgent", "mail", "news")
    harness.service.put(1, queue="news")
    harness.ask()

    assert harness.service.polled == [("urgent,mail,news", 3)]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_question_whose_answer_was_lost_is_asked_again_as_it_was(*, grouped: bool) -> None:
    harness = FetcherHarness("urgent", "mail", grouped=grouped)
    ids = harness.service.put(1, 2, 3, 4)
    harness.service.lose_dequeues = 2

    for _ in range(3):
        harness.ask()

    assert harness.service.polled == [("urgent,mail", 3)] * 3
    (key,) = {key for key, _ in harness.service.keys}
    assert [attempt for _, attempt in harness.service.keys] == [1, 2, 3]
    assert harness.fetched == ids[:3]
    assert [task.id for task in harness.service.waiting["mail"]] == ids[3:]

    harness.ask()
    assert harness.service.keys[-1] != (key, 4)


def test_a_question_that_was_refused_is_not_asked_again() -> None:
    harness = FetcherHarness()
    harness.ask()
    harness.service.fault = RateLimited("slowly")
    harness.ask()
    harness.service.fault = Forbidden("not you")
    harness.ask()
    harness.service.fault = None
    harness.ask()

    keys = [key for key, _ in harness.service.keys]
    assert len(set(keys)) == 2
    assert not harness.fatal


@pytest.mark.parametrize("kind", [NotFound, Forbidden])
def test_one_queue_that_is_refused_does_not_keep_the_others(kind: type[HeadraceError]) -> None:
    harness = FetcherHarness("urgent", "mail", "news")
    harness.ask()
    harness.service.refused["mail"] = kind
    harness.service.polled.clear()
    harness.service.put(1, queue="news")

    for _ in range(3):
        harness.ask()

    assert harness.service.polled[0] == ("urgent,news", 3)
    assert not harness.service.waiting["news"]
    assert not harness.fatal


def test_a_refusal_that_names_none_is_of_all() -> None:
    harness = FetcherHarness("urgent", "mail")
    harness.ask()
    harness.service.fault = Forbidden("the key is for nothing any more")
    harness.ask()

    assert harness.step() > 0
    assert harness.service.polled == [("urgent,mail", 3)]


def test_the_first_refusal_of_all_is_the_end() -> None:
    harness = FetcherHarness("urgent", "mail")
    harness.service.refused["mail"] = NotFound

    harness.ask()

    assert [type(error) for error in harness.fatal] == [NotFound]


def test_a_lease_that_is_lost_ends_its_question_and_another_is_opened() -> None:
    harness = FetcherHarness("urgent", "mail", grouped=True)
    harness.service.lose_dequeues = 1
    harness.service.put(1)
    harness.ask()
    harness.service.groups.clear()
    harness.ask()
    harness.ask()

    assert len([call for call in harness.service.group_calls if call.startswith("open")]) == 2
    assert len({key for key, _ in harness.service.keys}) == 2


def test_a_lost_answer_makes_a_group_doubtful_though_its_tasks_are_heard_of() -> None:
    harness = FetcherHarness("mail", grouped=True)
    harness.service.put(1)
    harness.service.lose_dequeues = 1
    for _ in range(3):
        harness.ask()

    assert [call for call in harness.service.group_calls if call.startswith("open")] == [
        "open group-2",
        "open group-3",
    ]
