"""The service in memory is the real one: the same HTTP, keys, roles and rules, at manual time."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headrace.client.sending import Report
from headrace.domain.errors import Forbidden, NotFound, Unauthenticated
from headrace.domain.task import State
from headrace.testing import ManualClock, MemoryService
from headrace.wire.queues import Recount
from headrace.wire.tasks import Count


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail")
        yield service


def test_a_clock_moves_only_when_told() -> None:
    clock = ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))

    clock.forward(1.5)
    clock.forward(timedelta(minutes=1))
    clock.forward_to(datetime(2025, 1, 1, tzinfo=UTC))

    assert clock.now == clock() == datetime(2026, 1, 1, 12, 1, 1, 500_000, tzinfo=UTC)


def test_a_clock_never_goes_back_and_knows_its_zone() -> None:
    with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
        ManualClock().forward(-1)
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 (that is what is refused)


def test_a_task_goes_all_the_way_and_back(service: MemoryService) -> None:
    made = service.client.enqueue("mail", {"to": "ada", "n": 2**70})

    (task,) = service.client.dequeue("mail", worker="ada:1").tasks
    report = Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED", result="ok")
    (message,) = service.client.report("mail", [report])

    assert task.payload == {"to": "ada", "n": 2**70}
    assert message.outcome == "OK"
    assert service.client.get_task(str(made.id)).result == "ok"


def test_tasks_come_in_the_order_in_which_they_were_enqueued(service: MemoryService) -> None:
    for number in range(30):
        service.client.enqueue("mail", number)

    tasks = [*service.client.dequeue("mail", batch_size=25).tasks]
    tasks += service.client.dequeue("mail", batch_size=25).tasks

    assert [task.payload for task in tasks] == list(range(30))


def test_nothing_comes_before_its_time_and_nobody_waits_for_it(service: MemoryService) -> None:
    service.client.enqueue("mail", delay_in_seconds=3600)

    assert service.client.dequeue("mail", wait_seconds=20).tasks == []
    service.clock.forward(3600)
    assert len(service.client.dequeue("mail").tasks) == 1


def test_the_timers_run_when_told(service: MemoryService) -> None:
    service.client.put_schedule("mail", "nightly", every_seconds=60)
    service.client.enqueue("mail", expires_at=service.clock.now + timedelta(seconds=5))
    service.clock.forward(65)

    timers = service.tick()

    assert timers.reaped.expired == 1
    assert timers.ticked.enqueued >= 1
    assert timers.recorded.counted >= 3
    assert service.client.get_stats("mail").counts.dead == 1


def test_time_that_passes_in_the_cloud_takes_the_timers_along(service: MemoryService) -> None:
    service.client.put_schedule("mail", "often", cron="*/10 * * * *")

    service.forward(timedelta(minutes=25))

    assert service.client.count_tasks("mail", state="READY").count == 2


def test_keys_do_what_their_role_may_and_no_more(service: MemoryService) -> None:
    made = service.client.create_key("mailer", "producer", ["mail"])
    producer = service.connect(made.secret)

    assert producer.enqueue("mail").outcome == "CREATED"
    with pytest.raises(Forbidden):
        producer.dequeue("mail")
    with pytest.raises(Forbidden):
        producer.enqueue("other")
    with pytest.raises(Unauthenticated):
        service.connect("nobody's").enqueue("mail")
    service.client.delete_key(made.id)
    with pytest.raises(Unauthenticated):
        producer.enqueue("mail")


def test_an_event_loop_has_a_client_too(service: MemoryService) -> None:
    async def work() -> object:
        await service.async_client.enqueue("mail", "hello")
        (task,) = (await service.async_client.dequeue("mail")).tasks
        return task.payload

    assert asyncio.run(work()) == "hello"


def test_a_count_that_takes_many_calls_is_one_to_its_caller(service: MemoryService) -> None:
    for _ in range(3):
        service.client.dequeue("mail")
        service.client.enqueue("mail")
    service.use_cases.inspect.patience = -1

    calls = service.client.consumed.calls

    async def in_a_loop() -> Count:
        return await service.async_client.count_tasks("mail")

    counted = service.client.count_tasks("mail")

    assert service.client.consumed.calls > calls + 2
    assert asyncio.run(in_a_loop()).by_state == counted.by_state
    assert (counted.count, counted.exact, counted.partial, counted.cursor) == (3, True, False, None)
    assert counted.by_state == {"ENQUEUED": 1, "INFLIGHT": 2, "SUCCEEDED": 0, "DEAD": 0}


def test_a_recount_is_one_call_to_its_caller(service: MemoryService) -> None:
    service.client.enqueue("mail")
    service.use_cases.recounting.patience = -1
    calls = service.client.consumed.calls

    async def in_a_loop() -> Recount:
        return await service.async_client.recount_queue("mail")

    found = service.client.recount_queue("mail")
    service.clock.forward(1)
    again = asyncio.run(in_a_loop())

    assert service.client.consumed.calls == calls + 4
    reported = found.counts[State.ENQUEUED], found.was[State.ENQUEUED], found.cursor
    assert reported == (1, 0, None)
    assert again.counts == again.was == found.counts


def test_names_that_need_quoting_arrive_as_they_are(service: MemoryService) -> None:
    service.client.enqueue("mail", tags={"a b/c": "ä&=%"})

    assert service.client.count_tasks("mail", tags={"a b/c": "ä&=%"}).count == 1
    with pytest.raises(NotFound):
        service.client.get_task("no-such-task")


def test_services_know_nothing_of_each_other(service: MemoryService) -> None:
    with MemoryService() as other:
        assert list(other.client.list_queues()) == []
        assert [queue.name for queue in service.client.list_queues()] == ["mail"]
