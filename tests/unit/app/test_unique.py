"""`unique_for`: at most one task of a key in each window of time, even after it has ended."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from headrace import App, Context, InvalidRequest
from headrace.domain import limits
from headrace.domain.errors import NotEnqueued
from headrace.domain.ids import new_task_id
from headrace.domain.plan import TaskSpec
from headrace.ops.shared.stack_secret import DerivedIds
from headrace.ops.tasks import unique_ids
from headrace.testing import MemoryService
from tests.unit.app.app_doubles import FakeHttp, run

HOUR = 3600
START = datetime(2026, 11, 21, 8, 10, tzinfo=UTC)


def send(to: str, note: str = "") -> str:
    return to


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service:
        yield service


def outcome(task: Any, *args: Any, **kwargs: Any) -> str:
    return str(task.enqueue(*args, **kwargs).outcome)


def test_a_task_that_has_ended_holds_its_window_and_the_next_window_is_free(
    service: MemoryService,
) -> None:
    app = App()
    task = app.task(unique_for=timedelta(hours=1))(send)
    with service.serving(app):
        first = task.enqueue("a")
        service.run(app)
        assert service.client.get_task(str(first.id)).state == "SUCCEEDED"

        again = task.enqueue("a")
        assert (again.outcome, again.id) == ("EXISTING", first.id)
        assert outcome(task, "b") == "CREATED"

        service.forward(HOUR)
        later = task.enqueue("a")
        assert (later.outcome, later.id != first.id) == ("CREATED", True)


def test_while_a_task_lives_no_other_is_made_in_the_next_window_either(
    service: MemoryService,
) -> None:
    app = App()
    task = app.task(unique_for=HOUR)(send)
    with service.serving(app):
        first = task.enqueue("a")
        service.clock.forward(HOUR)
        second = task.enqueue("a")
        assert (second.outcome, second.id) == ("DUPLICATE", first.id)


STEPS = ("enqueue", "finish", "wait")


def check_all_orders(service: MemoryService, length: int = 4) -> None:
    """Compare every order of *length* steps with what the words of the guide come to."""
    app = App()
    task = app.task(unique_for=HOUR)(send)
    with service.serving(app):
        for place, steps in enumerate(product(STEPS, repeat=length)):
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


@pytest.mark.parametrize("length", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_in_every_order_of_enqueueing_finishing_and_waiting_one_window_has_one_task(
    service: MemoryService, length: int
) -> None:
    check_all_orders(service, length)


def not_of_the_window(
    ids: DerivedIds, _queue: str, new: TaskSpec, now: datetime, _number: int
) -> str:
    return ids.task_id(now.replace(year=2000, month=1, day=1, hour=0), str(new.dedupe_key))


def random_id(_ids: DerivedIds, _queue: str, _new: TaskSpec, now: datetime, _number: int) -> str:
    return new_task_id(now)


@pytest.mark.parametrize("fault", [random_id, not_of_the_window])
def test_these_orders_find_ids_that_are_not_of_the_window(
    fault: Callable[..., str], monkeypatch: pytest.MonkeyPatch, service: MemoryService
) -> None:
    monkeypatch.setattr(unique_ids, "_id_of", fault)
    with pytest.raises(AssertionError):
        check_all_orders(service)


def test_it_holds_where_finished_tasks_are_not_kept(service: MemoryService) -> None:
    app = App()
    app.queue("default", history_retention_in_seconds=0)
    task = app.task(unique_for=limits.SPENT_SECONDS)(send)
    with service.serving(app):
        task.enqueue("a")
        service.run(app)
        assert outcome(task, "a") == "EXISTING"


def test_it_holds_in_one_call_of_many_and_in_each_queue_by_itself(service: MemoryService) -> None:
    app = App()
    task = app.task(unique_for=60)(send)
    with service.serving(app):
        many = task.enqueue_many([{"to": "a"}, {"to": "b"}, {"to": "a"}])
        assert [each.outcome for each in many] == ["CREATED", "CREATED", "EXISTING"]
        assert outcome(task.options(queue="other"), "a") == "CREATED"
        assert asyncio.run(task.aenqueue("b")).outcome == "EXISTING"


def test_spawned_tasks_are_held_back_without_harm_to_the_attempt(service: MemoryService) -> None:
    app = App()
    task = app.task(unique_for=60)(send)
    spawned: list[Any] = []

    @app.task
    def parent(ctx: Context) -> None:
        for _ in range(2):
            ctx.spawn(task, {"to": "a"})
        spawned.append(ctx.spawned)

    with service.serving(app):
        task.enqueue("a")
        parents = [parent.enqueue() for _ in range(2)]
        service.run(app)
        ends = {service.client.get_task(str(each.id)).state for each in parents}
        assert ends == {"SUCCEEDED"}
        assert service.client.count_tasks("default").count == 3


def test_the_key_may_be_declared_or_chosen_and_is_sent_as_well() -> None:
    sent = FakeHttp()
    app = sent.app()
    by_all = app.task(name="all", unique_for=60)(send)
    by_one = app.task(name="one", dedupe="{to}", unique_for=60)(send)
    chosen = app.task(name="chosen")(send).options(key="k", unique_for=60)
    for task in (by_all, by_one, chosen):
        task.enqueue("a", note="x")
        task.enqueue("a", note="y")

    assert [task["unique_for_seconds"] for task in sent.tasks] == [60] * 6
    assert not any("id" in task for task in sent.tasks)
    keys = [task["dedupe_key"] for task in sent.tasks]
    assert keys[0] != keys[1]
    assert [task["dedupe_key"] for task in sent.tasks[2:]] == ["a", "a", "k", "k"]
    assert sent.tasks[0]["dedupe_key"] == by_one_digest(by_all)


def by_one_digest(task: Any) -> str:
    """The key that dedupe=True would make."""
    app = FakeHttp().app()
    twin = app.task(name=task.name, dedupe=True)(send)
    key = twin.dedupe_key({"to": "a", "note": "x"})
    assert key is not None
    return key


def test_a_call_without_a_key_is_not_held_back() -> None:
    sent = FakeHttp()
    task = sent.app().task(dedupe=lambda to: to or None, unique_for=60)(send)
    task.enqueue("")
    task.enqueue("")
    assert len({each["id"] for each in sent.tasks}) == 2
    assert "unique_for_seconds" not in sent.tasks[0]
    assert "dedupe_key" not in sent.tasks[0]


def ids_at(service: MemoryService, *options: dict[str, Any]) -> list[Any]:
    """Return the ids that calls with these options find free; their tasks are deleted again."""
    app = App()
    task = app.task(name="send")(send)
    app.queue("default", history_retention_in_seconds=10 * 86_400)
    ids = []
    with service.serving(app):
        for each in options:
            ids.append(task.options(**each).enqueue("a").id)
            service.client.delete_task(str(ids[-1]))
    return ids


def test_a_window_is_one_of_the_due_time_and_begins_at_a_multiple_since_1970(
    service: MemoryService,
) -> None:
    early, late, after = ids_at(
        service,
        {"unique_for": HOUR, "delay": 1},
        {"unique_for": HOUR, "at": START},
        {"unique_for": HOUR, "delay": HOUR},
    )
    assert early == late != after
    day, same_day, next_day = ids_at(
        service,
        {"unique_for": timedelta(days=1)},
        {"unique_for": 86_400, "at": datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC)},
        {"unique_for": 86_400, "at": datetime(2026, 11, 22, tzinfo=UTC)},
    )
    assert day == same_day != next_day
    assert day != early


def test_a_prepared_call_leaves_the_id_to_the_service() -> None:
    app = FakeHttp().app()
    one = app.task(unique_for=60)(send).prepare("a").task
    assert (one.id, one.unique_for_seconds) == (None, 60)


def test_an_id_of_the_window_that_this_key_may_not_see_is_an_error(service: MemoryService) -> None:
    app, client = App(), service.client
    task = app.task(queue="mail", unique_for=HOUR)(send)
    client.create_queue("mail")
    client.create_queue("secret")
    with service.serving(app):
        first = str(task.enqueue("a").id)
    client.move_tasks("mail", "secret", ids=[first])
    key = client.create_key("ada", "producer", ["mail"]).secret
    producer = App(service.connect(key))

    with pytest.raises(NotEnqueued, match="belongs to a task that this key may not see"):
        producer.task(queue="mail", unique_for=HOUR, name=task.name)(send).enqueue("a")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"unique_for": 0}, "unique_for must be a number from 1 to 31536000 seconds, not 0"),
        ({"unique_for": "1h"}, "unique_for must be seconds or a timedelta, not str"),
    ],
)
def test_a_window_out_of_its_limits_is_refused_at_once(wrong: Any, message: str) -> None:
    app = FakeHttp().app()
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        app.task(**wrong)(send)
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        app.task(send).options(**wrong)


def test_a_window_excludes_an_id_and_needs_a_function() -> None:
    app = FakeHttp().app()
    with pytest.raises(InvalidRequest, match=r"^id and unique_for exclude each other"):
        app.task(unique_for=60)(send).options(id="mine")

    @app.handler(queue="orders")
    def handle(ctx: Context) -> None:
        with pytest.raises(InvalidRequest, match=r"^unique_for needs a task function"):
            ctx.spawn("raw", 5, key="k", unique_for=60)

    assert run(app, queue="orders").status == "SUCCEEDED"


def test_a_window_longer_than_finished_tasks_are_known_is_refused_with_what_to_declare() -> None:
    app = FakeHttp().app()
    task = app.task(queue="mail", unique_for=timedelta(days=2))(send)
    with pytest.raises(InvalidRequest) as refused:
        task.enqueue("a")
    assert str(refused.value) == (
        "unique_for must be at most 86400 seconds, as long as queue mail knows finished tasks, "
        "not 172800: declare app.queue('mail', history_retention_in_seconds=172800)"
    )
    app.queue("mail", history_retention_in_seconds=172_800)
    assert task.prepare("a").task.unique_for_seconds == 172_800

    app.queue("mail", history_retention_in_seconds=0)
    with pytest.raises(InvalidRequest, match="at most 900 seconds"):
        task.options(unique_for=901).prepare("a")


def test_a_task_that_is_dead_holds_its_window_until_it_is_deleted(service: MemoryService) -> None:
    app = App()

    @app.task(unique_for=HOUR, reject_on=Exception)
    def fail() -> None:
        raise ValueError

    with service.serving(app):
        first = str(fail.enqueue().id)
        service.run(app)
        assert service.client.get_task(first).state == "DEAD"
        assert outcome(fail) == "EXISTING"
        service.client.delete_task(first)
        assert outcome(fail) == "CREATED"
