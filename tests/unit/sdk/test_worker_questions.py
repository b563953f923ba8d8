"""How a worker asks for tasks: all queues in one call, and again after a lost answer."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.app.app import App
from headrace.client.models import Dequeued
from headrace.client.worker.clocks import ServiceClock
from headrace.client.worker.dispatcher import Dispatcher
from headrace.client.worker.fetcher import Fetcher
from headrace.client.worker.groups import Groups
from headrace.client.worker.loop import UNTIL_WOKEN
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    HeadraceError,
    NotFound,
    RateLimited,
)
from tests.unit.sdk.worker_ground import FakeService, Monotonic, dice, heard


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


class Ground:
    """A fetcher whose steps are taken by hand, and what it stands on."""

    def __init__(self, *queues: str, grouped: bool = False) -> None:
        self.monotonic = Monotonic()
        self.service = Refusing(self.monotonic)
        self.clock: ServiceClock = heard(self.monotonic)
        self.fatal: list[Exception] = []
        settings = WorkerSettings.of(queues or ("mail",), strict=True, concurrency=3)
        app = App()
        app.handler(queue="mail")(lambda payload: None)
        self.dispatcher = Dispatcher(
            app, self.service, self.clock, settings, fatal=self.fatal.append, chance=dice()
        )
        self.dispatcher.closed = True  # nothing runs here: what comes is given back
        groups = Groups(
            self.service,
            self.monotonic,
            self.dispatcher.inflight,
            keepalive=60,
            unsaid=self.dispatcher.reporter.unsaid_under,
        )
        self.fetcher = Fetcher(
            self.service,
            self.clock,
            settings,
            self.dispatcher,
            prepare=lambda: None,
            fatal=self.fatal.append,
            drained=lambda: None,
            chance=dice(),
            groups=groups if grouped else None,
        )
        self.fetcher.step()

    def ask(self) -> float:
        """Take steps, each once its time has come, until a question is asked."""
        before, wait = self.service.questions, 0.0
        for _ in range(5):
            wait = self.fetcher.step()
            if self.service.questions > before:
                break
            self.monotonic.forward(min(wait, 10))
        return wait


def test_all_queues_are_asked_in_one_call() -> None:
    ground = Ground("urgent", "mail", "news")
    ground.service.put(1, queue="news")
    ground.ask()

    assert ground.service.asked == [("urgent,mail,news", 3)]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_question_whose_answer_was_lost_is_asked_again_as_it_was(*, grouped: bool) -> None:
    ground = Ground("urgent", "mail", grouped=grouped)
    ids = ground.service.put(1, 2, 3, 4)
    ground.service.lose_dequeues = 2

    for _ in range(3):
        ground.ask()

    assert ground.service.asked == [("urgent,mail", 3)] * 3
    (key,) = {key for key, _ in ground.service.keys}
    assert [attempt for _, attempt in ground.service.keys] == [1, 2, 3]
    assert len(ground.dispatcher.reporter) == 3  # given back, each of them
    assert [task.id for task in ground.service.waiting["mail"]] == ids[3:]

    ground.ask()
    assert ground.service.keys[-1] != (key, 4)


def test_a_question_that_was_refused_is_not_asked_again() -> None:
    ground = Ground()
    ground.ask()
    ground.service.fault = RateLimited("slowly")
    ground.ask()
    ground.service.fault = Forbidden("not you")
    ground.ask()
    ground.service.fault = None
    ground.ask()

    keys = [key for key, _ in ground.service.keys]
    assert len(set(keys)) == 2
    assert not ground.fatal


@pytest.mark.parametrize("kind", [NotFound, Forbidden])
def test_one_queue_that_is_refused_does_not_keep_the_others(kind: type[HeadraceError]) -> None:
    ground = Ground("urgent", "mail", "news")
    ground.ask()
    ground.service.refused["mail"] = kind
    ground.service.asked.clear()
    ground.service.put(1, queue="news")

    for _ in range(3):
        ground.ask()

    assert ground.service.asked[0] == ("urgent,news", 3)
    assert not ground.service.waiting["news"]
    assert not ground.fatal


def test_a_refusal_that_names_none_is_of_all() -> None:
    ground = Ground("urgent", "mail")
    ground.ask()
    ground.service.fault = Forbidden("the key is for nothing any more")
    ground.ask()

    assert ground.fetcher.step() > 0
    assert ground.service.asked == [("urgent,mail", 3)]


def test_the_first_refusal_of_all_is_the_end() -> None:
    ground = Ground("urgent", "mail")
    ground.service.refused["mail"] = NotFound

    assert ground.ask() == UNTIL_WOKEN
    assert [type(error) for error in ground.fatal] == [NotFound]


def test_a_lease_that_is_lost_ends_its_question_and_another_is_opened() -> None:
    ground = Ground("urgent", "mail", grouped=True)
    ground.service.lose_dequeues = 1
    ground.service.put(1)
    ground.ask()
    ground.service.groups.clear()
    ground.ask()
    ground.ask()

    assert len([call for call in ground.service.group_calls if call.startswith("open")]) == 2
    assert len({key for key, _ in ground.service.keys}) == 2


def test_a_lost_answer_makes_a_group_doubtful_though_its_tasks_are_heard_of() -> None:
    ground = Ground("mail", grouped=True)
    ground.service.put(1)
    ground.service.lose_dequeues = 1
    for _ in range(3):
        ground.ask()

    assert [call for call in ground.service.group_calls if call.startswith("open")] == [
        "open group-2",
        "open group-3",
    ]
