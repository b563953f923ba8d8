"""What no emulator shows: lost answers, throttling, a lagging index, a table that is away.

A client stands between the store and the real engine and makes these happen when told, so often as
a seeded chance says.  Whatever it does, an answer is right, and nothing happens twice.
"""

import json
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.plan import NewTask
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.reports import Report, Reported, ReportOutcome, ReportStatus
from headrace.ops.tasks import EnqueueOutcome
from headrace.store import keys
from headrace.store.dynamo import DynamoStore, Sender
from infra.local.tables import DynamoDBClient, TableNames
from tests.contract.conftest import World, lease_name, new_world
from tests.manual_clock import ManualClock

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
NEVER = RetryStrategy(max_retries=0)
AN_HOUR = timedelta(hours=1)
WRITES = {"put_item", "update_item", "delete_item", "transact_write_items"}
BATCHES = {"batch_execute_statement"}
READS = {"get_item", "batch_get_item", "query"}
T = TypeVar("T")
Answer = dict[str, Any]
Call = Callable[..., Answer]


@dataclass
class Faults:
    """What goes wrong, as shares of all calls (of all statements or keys, for throttling).

    ``lost``: a write takes effect, its answer is lost, and the SDK sends it again.
    ``cut``: the same, but the SDK has no try left.  ``away``: the call never arrives.
    ``stuck`` tells of a statement whether it is throttled each time.
    """

    lost: float = 0.0
    cut: float = 0.0
    away: float = 0.0
    throttled: float = 0.0
    stale: float = 0.0
    stuck: Callable[[Answer], bool] = lambda _: False
    meanwhile: Callable[[], None] | None = None  # what others do before a lost write is repeated
    blocked: Callable[[str, Answer], bool] = lambda _name, _arguments: False
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def strike(self, share: float) -> bool:
        return self.chance.random() < share


class FaultyClient:
    """boto3's client as the store sees it, on a bad day."""

    def __init__(self, client: DynamoDBClient, faults: Faults) -> None:
        self._client = client
        self.faults = faults
        self._index: list[Answer] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if name not in WRITES | BATCHES | READS:
            return real

        def call(**arguments: Any) -> Answer:
            return self._call(name, real, arguments)

        return call

    def _call(self, name: str, real: Call, arguments: Answer) -> Answer:
        if self.faults.strike(self.faults.away) or self.faults.blocked(name, arguments):
            raise EndpointConnectionError(endpoint_url="the table")
        match name:
            case "query" if arguments.get("IndexName") and self.faults.strike(self.faults.stale):
                return self._lagging(arguments)
            case "batch_get_item":
                return self._partly_read(real, arguments)
            case "batch_execute_statement":
                return self._partly_written(real, arguments)
            case _ if name in READS:
                return real(**arguments)
        if self.faults.strike(self.faults.throttled):
            error = {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": ""}}
            raise ClientError(error, name)
        if name == "transact_write_items":  # boto3 puts the same token on every try
            arguments |= {"ClientRequestToken": uuid.uuid4().hex}
        return self._answered(real, arguments)

    def _answered(self, real: Call, arguments: Answer) -> Answer:
        """Send a write; its answer may get lost, and the SDK then sends it again, or gives up."""
        if self.faults.strike(self.faults.cut):
            self._unheard(real, arguments)
            raise ReadTimeoutError(endpoint_url="the table")
        if self.faults.strike(self.faults.lost):
            self._unheard(real, arguments)
            if self.faults.meanwhile is not None:
                others, self.faults.meanwhile = self.faults.meanwhile, None
                others()
        return real(**arguments)

    @staticmethod
    def _unheard(real: Call, arguments: Answer) -> None:
        with suppress(ClientError):  # a refusal, which the SDK hears when it asks again
            real(**arguments)

    def _partly_written(self, real: Call, arguments: Answer) -> Answer:
        """Throttle some statements of a batch and send the others."""
        statements = arguments["Statements"]
        errors: list[Answer | None] = [
            {"Error": {"Code": self.faults.chance.choice(_THROTTLINGS), "Message": "slow down"}}
            if self.faults.stuck(statement) or self.faults.strike(self.faults.throttled)
            else None
            for statement in statements
        ]
        sent = [one for one, error in zip(statements, errors, strict=True) if error is None]
        answer: Answer = {"Responses": []}
        if sent:
            answer = self._answered(real, {**arguments, "Statements": sent})
        made = iter(answer["Responses"])
        return answer | {"Responses": [error or next(made) for error in errors]}

    def _partly_read(self, real: Call, arguments: Answer) -> Answer:
        """Leave some keys of a read unprocessed."""
        ((table, request),) = arguments["RequestItems"].items()
        left = [key for key in request["Keys"] if self.faults.strike(self.faults.throttled)]
        asked = [key for key in request["Keys"] if key not in left]
        answer: Answer = {"Responses": {}}
        if asked:
            answer = real(**{**arguments, "RequestItems": {table: {**request, "Keys": asked}}})
        return answer | {"UnprocessedKeys": {table: {**request, "Keys": left}} if left else {}}

    def freeze_index(self, table: str) -> None:
        """Remember the index as it is; a stale query is answered from it until the next time."""
        self._index = self._client.scan(TableName=table, IndexName=keys.BY_STATE)["Items"]

    def _lagging(self, query: Answer) -> Answer:
        """Answer a query of the index as it was."""
        values = query["ExpressionAttributeValues"]
        since = int(values.get(":since", {"N": "0"})["N"])
        until = int(values.get(":until", {"N": str(10**18)})["N"])
        found = sorted(
            (
                item
                for item in self._index
                if item[keys.QUEUE_STATE] == values[":place"] and since <= _at(item)[0] <= until
            ),
            key=_at,
            reverse=not query.get("ScanIndexForward", True),
        )
        if (start := query.get("ExclusiveStartKey")) is not None:
            found = [item for item in found if _at(item) > _at(start)]
        limit = query.get("Limit", len(found))
        answer: Answer = {"Items": found[:limit], "Count": len(found[:limit])}
        if len(found) > limit:
            answer["LastEvaluatedKey"] = found[limit - 1]
        return answer


_THROTTLINGS = ("ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded")


def _at(item: Answer) -> tuple[int, str]:
    return int(item[keys.SCHEDULED_AT]["N"]), item[keys.TASK_ID]["S"]


@dataclass
class Service:
    """A service on a faulty client, and what it takes to make it faulty for a while."""

    world: World
    client: FaultyClient
    tables: TableNames

    @contextmanager
    def suffering(self, **faults: Any) -> Iterator[Faults]:
        """Let these faults happen inside the block."""
        self.client.faults = Faults(**faults)
        yield self.client.faults
        self.client.faults = Faults()

    def see(self, task_id: str) -> Task:
        return self.world.see(task_id)


@pytest.fixture(params=["batch", "single"])
def sender(request: pytest.FixtureRequest) -> Sender:
    chosen: Sender = request.param
    return chosen


@pytest.fixture
def new_service(
    dynamodb: DynamoDBClient, tables: TableNames, sender: Sender
) -> Callable[[], Service]:
    """Give a function that starts one more service on the same tables, by the same clock."""
    clock = ManualClock()

    def start() -> Service:
        client = FaultyClient(dynamodb, Faults())
        store = DynamoStore(
            client,
            tasks_table=tables.tasks,
            control_table=tables.control,
            sender=sender,
            sleep=lambda _: None,
        )
        return Service(new_world(store, clock), client, tables)

    return start


@pytest.fixture
def service(new_service: Callable[[], Service]) -> Service:
    return new_service()


@pytest.fixture
def world(service: Service) -> World:
    return service.world


# -- lost answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{}, {"id": "order-1"}, {"dedupe_key": "k"}, {"id": "order-1", "dedupe_key": "k"}]
)
def test_an_enqueue_whose_answer_was_lost_created_its_task_once(
    service: Service, world: World, fields: dict[str, str]
) -> None:
    queue = world.queue()

    with service.suffering(lost=1):
        (result,) = world.use.tasks.enqueue(queue, [NewTask("1", **fields)])  # type: ignore[arg-type]

    assert result.outcome is EnqueueOutcome.CREATED
    assert service.see(str(result.id)).version == 1
    assert world.use.inspect.count(queue).count == 1


def test_a_batch_of_enqueues_whose_answer_was_lost_is_there_once(
    service: Service, world: World
) -> None:
    queue = world.queue()
    world.put(queue, id="order-3")

    with service.suffering(lost=1):
        results = world.use.tasks.enqueue(
            queue, [NewTask(str(number), id=f"order-{number}") for number in range(25)]
        )

    outcomes = Counter(result.outcome for result in results)
    assert outcomes == {EnqueueOutcome.CREATED: 24, EnqueueOutcome.EXISTING: 1}
    assert results[3].outcome is EnqueueOutcome.EXISTING
    assert world.use.inspect.count(queue).count == 25


@pytest.mark.parametrize("sender", ["batch"], indirect=True)  # a single refusal brings the item
def test_an_enqueue_is_not_repeated_when_its_task_was_gone_before_it_could_be_read(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    """It took effect, a worker was done with it and nothing was kept: that is no second task."""
    queue = world.queue(history_retention_in_seconds=0)
    other = new_service().world
    done: list[Task] = []

    def come_and_go(name: str, _arguments: Answer) -> bool:
        if name == "batch_get_item" and not done:
            done.append(other.one(queue))
            other.say(done[0], "SUCCEEDED")
        return False

    with service.suffering(lost=1, blocked=come_and_go):
        (result,) = world.use.tasks.enqueue(queue, [NewTask("1")])

    assert result.outcome is EnqueueOutcome.CREATED
    assert [task.id for task in done] == [result.id]
    assert world.take(queue) == ()


def test_a_dequeue_whose_answer_was_lost_delivers_once(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 25)

    with service.suffering(lost=1):
        tasks = world.take(queue, 25)

    assert [task.id for task in tasks] == ids
    assert {(task.attempts, task.version) for task in tasks} == {(1, 2)}
    assert new_service().world.take(queue, 25) == ()
    assert world.say(tasks[0], "SUCCEEDED").outcome is ReportOutcome.OK


REPORTS: list[tuple[str, dict[str, Any], State]] = [
    ("SUCCEEDED", {"result": "1"}, State.SUCCEEDED),
    ("INFLIGHT", {"progress": "1"}, State.INFLIGHT),
    ("FAILED", {}, State.ENQUEUED),
    ("FAILED", {"retryable": False}, State.DEAD),
    ("RELEASED", {}, State.ENQUEUED),
    ("MOVED", {"to_queue": "other", "payload": "2"}, State.ENQUEUED),
]


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("status", "fields", "state"), REPORTS)
def test_a_report_whose_answer_was_lost_took_effect_once(
    service: Service,
    world: World,
    status: str,
    fields: dict[str, Any],
    state: State,
    *,
    keyed: bool,
) -> None:
    queue, _ = world.queue(retry_strategy=AT_ONCE), world.queue("other")
    world.put(queue, dedupe_key="key" if keyed else None)
    task = world.one(queue)

    with service.suffering(lost=1):
        result = world.say(task, status, **fields)

    assert result.outcome is ReportOutcome.OK
    after = service.see(task.id)
    assert after.state is state
    assert (len(after.errors), len(after.trail)) == (status == "FAILED", status == "MOVED")
    assert after.attempts == (status not in ("RELEASED", "MOVED"))
    repeated = 2 if status == "INFLIGHT" else 1  # a lease may be renewed twice
    assert after.version == task.version + repeated
    assert result.task == after


def test_a_failure_whose_answer_was_lost_counts_once_though_others_were_quick(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue)
    task = world.one(queue)
    other = new_service().world
    taken: list[Task] = []

    with service.suffering(lost=1, meanwhile=lambda: taken.append(other.one(queue))):
        result = world.say(task, "FAILED")

    assert result.outcome is ReportOutcome.OK
    assert service.see(task.id) == taken[0]
    assert other.say(taken[0], "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
def test_a_success_that_nobody_keeps_is_done_or_gone(
    service: Service, world: World, *, keyed: bool
) -> None:
    """Design 1 leaves both answers open; above all the task is gone, and gone once."""
    queue = world.queue(history_retention_in_seconds=0)
    world.put(queue, dedupe_key="key" if keyed else None)
    task = world.one(queue)

    with service.suffering(lost=1):
        result = world.say(task, "SUCCEEDED")

    assert result.outcome in (ReportOutcome.OK, ReportOutcome.NOT_FOUND)
    assert world.store.read([task.id]) == {}
    (again,) = world.use.tasks.enqueue(queue, [NewTask("2", dedupe_key="key")])
    assert again.outcome is EnqueueOutcome.CREATED


def test_what_the_reaper_did_though_it_never_heard_so_is_done_once(
    service: Service, world: World
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    ids = world.put(queue, "1", "2", "3")
    world.take(queue, 2)
    ids += world.put(queue, "4", expires_at=world.clock() + AN_HOUR)
    world.clock.forward(AN_HOUR.total_seconds())

    with service.suffering(lost=1):
        world.use.reaping.run()
    world.use.reaping.run()

    first, second, _, fourth = (service.see(task_id) for task_id in ids)
    for task in (first, second):
        assert (task.state, task.attempts, len(task.errors)) == (State.ENQUEUED, 1, 1)
    assert (fourth.state, fourth.version) == (State.DEAD, 2)


def test_a_purge_whose_answers_were_lost_leaves_nothing(service: Service, world: World) -> None:
    queue = world.queue()
    world.put(queue, *["{}"] * 30)

    with service.suffering(lost=1):
        purged = world.use.queues.purge(queue, (State.ENQUEUED,))

    assert purged.finished
    assert world.use.inspect.count(queue).count == 0


def test_a_delete_whose_answer_was_lost_is_no_missing_task(service: Service, world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)

    with service.suffering(lost=1):
        world.use.tasks.delete(task_id)

    with pytest.raises(NotFound):
        service.see(task_id)


def test_a_queue_whose_creation_was_not_heard_of_is_created(service: Service, world: World) -> None:
    with service.suffering(lost=1):
        created = world.use.queues.create("mail", QueueSettings(description="ours"))

    assert world.use.queues.get("mail") == created


def test_settings_whose_change_was_not_heard_of_are_changed_once(
    service: Service, world: World
) -> None:
    queue = world.queue()

    with service.suffering(lost=1):
        changed = world.use.queues.replace(queue, QueueSettings(description="new"), version=1)

    assert world.use.queues.get(queue) == changed
    assert (changed.version, changed.settings.description) == (2, "new")


def test_a_queue_whose_deletion_was_not_heard_of_is_gone_with_its_tasks(
    service: Service, world: World
) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)

    with service.suffering(lost=1):
        assert world.use.queues.delete(queue)

    with pytest.raises(NotFound):
        world.use.queues.get(queue)
    assert world.store.read([task_id]) == {}


# -- throttling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", ["batch"], indirect=True)  # the SDK repeats single writes
@pytest.mark.parametrize("seed", range(3))
def test_statements_that_are_throttled_for_a_moment_are_sent_again_alone(
    service: Service, world: World, seed: int
) -> None:
    queue = world.queue()

    with service.suffering(throttled=0.3, chance=random.Random(seed)):
        results = world.use.tasks.enqueue(queue, [NewTask(str(n)) for n in range(25)])
        tasks = world.take(queue, 25)
        reported = report_all(world, tasks, "SUCCEEDED")

    assert {result.outcome for result in results} == {EnqueueOutcome.CREATED}
    assert [task.id for task in tasks] == [result.id for result in results]
    assert {result.outcome for result in reported} == {ReportOutcome.OK}
    assert world.use.inspect.count(queue).by_state[State.SUCCEEDED] == 25


ACTS: list[tuple[str, Callable[[World, Task], object]]] = [
    ("enqueue", lambda world, _: world.put("mail")),
    ("enqueue keyed", lambda world, _: world.put("mail", dedupe_key="k")),
    ("dequeue", lambda world, _: world.take("mail")),
    *(
        (status, lambda world, task, of=status, more=fields: world.say(task, of, **more))
        for status, fields, _ in REPORTS
    ),
    ("delete", lambda world, task: world.use.tasks.delete(task.id)),
    ("purge", lambda world, _: world.use.queues.purge("mail", tuple(State))),
    ("create", lambda world, _: world.queue("new")),
    ("pause", lambda world, _: world.use.queues.pause("mail")),
]


@pytest.mark.parametrize("fault", [{"throttled": 1}, {"away": 1}], ids=["throttled", "away"])
@pytest.mark.parametrize(("_name", "act"), ACTS, ids=[name for name, _ in ACTS])
def test_a_table_that_throttles_or_is_away_is_unavailable_and_unchanged(
    service: Service,
    world: World,
    _name: str,
    act: Callable[[World, Task], object],
    fault: dict[str, float],
) -> None:
    queue, _ = world.queue(keepalive_timeout_in_seconds=5), world.queue("other")
    world.put(queue, "1", "2", dedupe_key=None)
    task = world.one(queue)
    world.clock.forward(5)
    before = everything(service)

    with service.suffering(**fault), pytest.raises(Unavailable):
        act(world, task)

    assert everything(service) == before


@pytest.mark.parametrize("fault", [{"throttled": 1}, {"away": 1}], ids=["throttled", "away"])
def test_the_reaper_stops_while_the_table_throttles_and_says_so(
    service: Service, world: World, fault: dict[str, float]
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue)
    world.one(queue)
    world.clock.forward(5)
    before = everything(service)

    with service.suffering(**fault):
        reaped = world.use.reaping.run()

    assert (reaped.throttled, reaped.retried) == (True, 0)
    assert everything(service) == before


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "RELEASED"])
def test_reports_of_which_a_part_was_throttled_may_be_repeated(
    service: Service, world: World, status: str
) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue, *["{}"] * 10)
    tasks = world.take(queue, 10)

    with service.suffering(stuck=about(tasks[4].id), blocked=alone(tasks[4].id)):
        with pytest.raises(Unavailable):
            report_all(world, tasks, status)
        assert service.see(tasks[4].id) == tasks[4]

    results = report_all(world, tasks, status)
    assert {result.outcome for result in results} == {ReportOutcome.OK}
    assert {service.see(task.id).version for task in tasks} == {3}


def test_enqueues_of_which_a_part_was_throttled_may_be_repeated_by_their_ids(
    service: Service, world: World
) -> None:
    queue = world.queue()
    entries = [NewTask("{}", id=f"order-{number}") for number in range(10)]

    with (
        service.suffering(stuck=about("order-4"), blocked=alone("order-4")),
        pytest.raises(Unavailable),
    ):
        world.use.tasks.enqueue(queue, entries)

    outcomes = [result.outcome for result in world.use.tasks.enqueue(queue, entries)]
    assert outcomes[4] is EnqueueOutcome.CREATED
    assert set(outcomes) <= {EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING}
    assert world.use.inspect.count(queue).count == 10


def test_a_dequeue_of_which_a_part_was_throttled_hands_out_what_it_has_leased(
    service: Service, world: World
) -> None:
    """A lease that reaches no worker lapses and costs an attempt, for nothing."""
    queue = world.queue(retry_strategy=NEVER)
    ids = world.put(queue, *["{}"] * 10)

    with service.suffering(stuck=about(ids[4]), blocked=alone(ids[4])):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


def test_a_dequeue_hands_out_what_it_has_leased_though_another_shard_does_not_answer(
    service: Service, world: World
) -> None:
    queue = world.queue(shards=2, retry_strategy=NEVER)
    ids = world.put(queue, *["{}"] * 10)
    queries = iter([False, True])

    with service.suffering(blocked=lambda name, _: name == "query" and next(queries, True)):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


def test_a_dequeue_hands_out_what_it_has_leased_though_it_cannot_help_the_reaper(
    service: Service, world: World
) -> None:
    queue = world.queue(retry_strategy=NEVER)
    ids = world.put(queue, *["{}"] * 3)

    with service.suffering(blocked=asks_for(State.INFLIGHT)):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


# -- a lagging index ----------------------------------------------------------------------------


def test_a_lagging_index_never_delivers_twice(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 40)
    other = new_service()
    service.client.freeze_index(service.tables.tasks)
    other.client.freeze_index(service.tables.tasks)

    delivered: list[Task] = []
    with service.suffering(stale=1), other.suffering(stale=1):
        for _ in range(6):
            delivered += [*world.take(queue, 5), *other.world.take(queue, 5)]

    assert len({task.id for task in delivered}) == len(delivered)
    while tasks := [*world.take(queue, 25), *other.world.take(queue, 25)]:
        delivered += tasks
    assert Counter(task.id for task in delivered) == Counter(ids)
    assert {task.attempts for task in delivered} == {1}


def test_a_lagging_index_hides_no_task_for_good(service: Service, world: World) -> None:
    queue = world.queue()
    service.client.freeze_index(service.tables.tasks)
    world.put(queue, "1")

    with service.suffering(stale=1):
        assert world.take(queue) == ()

    assert world.one(queue).payload == "1"


def test_what_came_back_for_later_is_not_delivered_by_an_index_that_lags(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue()
    world.put(queue)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    world.say(world.one(queue), "RELEASED", delay_in_seconds=60)

    with other.suffering(stale=1):
        assert other.world.take(queue) == ()


def test_the_reaper_takes_back_nothing_that_only_a_lagging_index_has_lapse(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue, "1", "2", "3")
    renewed, done, again = world.take(queue, 3)
    reaper = new_service()
    reaper.client.freeze_index(service.tables.tasks)
    world.clock.forward(4)
    world.say(renewed, "INFLIGHT")
    world.say(done, "SUCCEEDED")
    world.say(again, "RELEASED")
    world.clock.forward(2)
    (again,) = world.take(queue)
    before = everything(service)

    with reaper.suffering(stale=1):
        assert reaper.world.use.reaping.run().retried == 0

    assert everything(service) == before
    assert again.attempts == 1


@pytest.mark.parametrize(("at_first", "then"), [(1, 3), (3, 1)])
def test_an_expiry_that_was_overwritten_counts_though_the_index_lags(
    service: Service,
    world: World,
    new_service: Callable[[], Service],
    at_first: int,
    then: int,
) -> None:
    queue = world.queue()
    world.put(queue, "1", dedupe_key="k", expires_at=world.clock() + at_first * AN_HOUR)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    expires_at = world.clock() + then * AN_HOUR
    new = NewTask("1", dedupe_key="k", expires_at=expires_at, overwrite=frozenset({"expires_at"}))
    world.use.tasks.enqueue(queue, [new])
    world.clock.forward(2 * AN_HOUR.total_seconds())

    with other.suffering(stale=1):
        assert other.world.use.reaping.run().expired == 0
        assert other.world.take(queue) == ()  # by its index, or by the condition of the write

    delivered = world.take(queue)
    assert len(delivered) == (then == 3)


def test_a_purge_by_an_index_that_lags_removes_only_what_is_in_the_states_named(
    service: Service, world: World, new_service: Callable[[], Service]
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    task = world.one(queue)

    with other.suffering(stale=1):
        assert other.world.use.queues.purge(queue, (State.ENQUEUED,)).deleted == 1

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK


def test_a_list_by_an_index_that_lags_shows_nothing_in_a_state_it_is_not_in(
    service: Service, world: World
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    service.client.freeze_index(service.tables.tasks)
    world.one(queue)

    with service.suffering(stale=1):
        listed = world.use.inspect.list(queue).tasks

    assert [(task.payload, task.state) for task in listed if task.payload] == []
    assert [task.state for task in listed] == [State.ENQUEUED]


# -- all of it at once --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "seed"),
    [("batch", 0), ("batch", 1), ("batch", 2), ("single", 3)],
    indirect=["sender"],
)
def test_on_a_bad_day_every_task_still_ends_and_no_success_counts_twice(
    new_service: Callable[[], Service], seed: int
) -> None:
    """Callers do what a client does: they repeat a call that was answered with Unavailable."""
    services = [new_service() for _ in range(3)]
    world = services[0].world
    settings = QueueSettings(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    queue = world.use.queues.create("mail", settings).name
    for of in services:
        of.world.use.queues.get(queue)
        of.client.freeze_index(of.tables.tasks)
        of.client.faults = Faults(
            lost=0.2, cut=0.05, away=0.05, throttled=0.05, stale=0.2, chance=random.Random(seed)
        )
    ids = [f"order-{number}" for number in range(40)]
    for start in range(0, 40, 10):
        entries = [NewTask("{}", id=task_id) for task_id in ids[start : start + 10]]
        results = insisted(lambda e=entries: world.use.tasks.enqueue(queue, e))  # type: ignore[misc]
        outcomes = {result.outcome for result in results}
        assert outcomes <= {EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING}

    successes: Counter[str] = Counter()
    chance = random.Random(seed)
    for turn in range(400):
        of = services[turn % 3]
        if turn % 7 == 0:
            of.client.freeze_index(of.tables.tasks)
        tasks = tasks_of(lambda w=of.world: w.take(queue, 10))  # type: ignore[misc]
        for task in tasks:
            status = chance.choice(["SUCCEEDED", "SUCCEEDED", "FAILED", "RELEASED", "INFLIGHT"])
            result = insisted(lambda w=of.world, t=task, s=status: w.say(t, s))  # type: ignore[misc]
            if status == "SUCCEEDED" and result.outcome is ReportOutcome.OK:
                successes[task.id] += 1
        of.world.clock.forward(1)
        insisted(of.world.use.reaping.run)
        if len(successes) == len(ids):
            break

    for of in services:
        of.client.faults = Faults()
    assert successes == Counter(ids)
    for task in world.store.read(ids).values():
        assert task.state is State.SUCCEEDED
        assert task.attempts == 1 + len(task.errors) or len(task.errors) == 20


# -- helpers ------------------------------------------------------------------------------------


def report_all(world: World, tasks: Sequence[Task], status: str) -> list[Reported]:
    reports = [Report(task.id, str(lease_name(task)), ReportStatus(status)) for task in tasks]
    return world.use.reports.report(tasks[0].queue, reports)


def insisted(call: Callable[[], T]) -> T:
    """Repeat *call* until the table answers."""
    for _ in range(100):
        try:
            return call()
        except Unavailable:
            continue
    message = "the table never answers"
    raise AssertionError(message)


def tasks_of(dequeue: Callable[[], Sequence[Task]]) -> list[Task]:
    """Return what was handed out; nothing when the table does not answer."""
    try:
        return list(dequeue())
    except Unavailable:
        return []


def about(task_id: str) -> Callable[[Answer], bool]:
    """Tell the statements that are about *task_id*."""
    return lambda statement: {"S": task_id} in statement["Parameters"]


def alone(task_id: str) -> Callable[[str, Answer], bool]:
    """Tell the single writes that are about *task_id*."""

    def block(name: str, arguments: Answer) -> bool:
        item = arguments.get("Item") or arguments.get("Key") or {}
        return name in WRITES and item.get(keys.TASK_ID) == {"S": task_id}

    return block


def asks_for(state: State) -> Callable[[str, Answer], bool]:
    """Tell the queries of the index that ask for tasks in *state*."""

    def block(name: str, arguments: Answer) -> bool:
        values = arguments.get("ExpressionAttributeValues", {})
        return name == "query" and f"#{state}#" in values.get(":place", {"S": ""})["S"]

    return block


def everything(service: Service) -> list[Answer]:
    """Return every item of both tables, read past the faults."""
    scan = service.client._client.scan  # noqa: SLF001  the real client, whatever it suffers from
    items = [
        item
        for table in (service.tables.tasks, service.tables.control)
        for item in scan(TableName=table)["Items"]
        if not re.match("chore", item.get(keys.PK, {"S": ""})["S"])
    ]
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def assert_no_attempt_was_spent_in_vain(
    world: World, ids: Sequence[str], delivered: Sequence[Task]
) -> None:
    """Check that only those tasks are leased that a worker was handed."""
    leased = {task.id for task in world.store.read(ids).values() if task.state is State.INFLIGHT}
    assert leased == {task.id for task in delivered}
