"""Fields that a queue indexes: tasks are found by them in one look, whenever they came."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import TaskFilter
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.tasks.inspect import TaskListing
from headrace.store.base import Store
from headrace.store.records.queues import KNOWN_AFTER, every_index
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

FIELDS = ("tag:tenant", "payload.order.id")
ACME = TaskFilter(tags={"tenant": "acme"})


class Indexed:
    """A service whose stream is recorded when told."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.stream = Streamed(store, clock)
        self.world: World = new_world(self.stream.store, clock)
        self.clock = clock

    def record(self) -> None:
        self.world.use.recording.record(SHARD, self.stream.taken())

    def index(self, *fields: str, queue: str = "mail") -> None:
        self.world.use.queues.replace(queue, QueueSettings(indexed_fields=fields))

    def build(self) -> None:
        """Let everybody know of the fields, and the reaper do its part."""
        self.record()
        self.clock.forward(KNOWN_AFTER.total_seconds() + 1)
        self.record()
        self.world.use.reaping.run()

    def listed(self, where: TaskFilter = ACME, queue: str = "mail", **more: Any) -> TaskListing:
        return self.world.use.inspect.list(queue, where, **more)

    def found(self, where: TaskFilter = ACME, queue: str = "mail") -> set[str]:
        """Return what a search finds, which must be by an index, and in one page."""
        listed = self.listed(where, queue, look_at=5)
        assert listed.by_creation
        assert listed.cursor is None
        return {task.id for task in listed.tasks}


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Indexed:
    made = Indexed(store, clock)
    made.world.queue(indexed_fields=FIELDS)
    made.world.queue("sms")
    return made


@pytest.mark.gate
def test_a_match_among_many_is_found_in_one_page(it: Indexed) -> None:
    it.build()
    it.world.put("mail", *["{}"] * 20, tags={"tenant": "other"})
    meant = it.world.put("mail", '{"order": {"id": 77}}', tags={"tenant": "acme"})
    it.world.put("mail", *["{}"] * 20)
    it.record()

    assert it.found() == {*meant}
    assert it.found(TaskFilter(payload={"order.id": "77"})) == {*meant}
    assert it.found(TaskFilter(tags={"tenant": "acme"}, payload={"order.id": "78"})) == set()
    assert it.found(TaskFilter(states=("DEAD",), tags={"tenant": "acme"})) == set()


def test_what_was_there_before_is_found_once_it_is_built(it: Indexed) -> None:
    queue = it.world.queue("old")
    meant = it.world.put(queue, *['{"order": {"id": 77}}'] * 3, tags={"tenant": "acme"})
    it.world.say(it.world.one(queue), "SUCCEEDED")
    it.world.say(it.world.one(queue), "FAILED", retryable=False)
    it.record()

    it.index(*FIELDS, queue=queue)
    assert not it.listed(queue=queue).by_creation
    it.build()

    assert it.found(queue=queue) == {*meant}
    assert it.found(TaskFilter(payload={"order.id": "77"}), queue) == {*meant}


def test_an_index_that_lacks_tasks_is_built_anew(it: Indexed) -> None:
    it.world.put("mail", tags={"tenant": "acme"})
    it.build()
    (gone,) = it.found()
    (unseen,) = it.world.put("mail", tags={"tenant": "acme"})
    it.world.use.tasks.delete(gone)
    it.stream.taken()  # and nobody has recorded it
    assert it.found() == set()

    it.world.use.queues.reindex("mail")

    assert not it.listed().by_creation, "until it is built each task is looked at"
    assert {task.id for task in it.listed().tasks} == {unseen}
    it.world.use.queues.replace("mail", QueueSettings(indexed_fields=FIELDS, shards=2))
    for _ in range(2):  # all of it is taken out first
        it.build()
    assert it.found() == {unseen}
    (index,) = every_index(it.world.store).values()
    assert (index.built, index.wanted) == (True, FIELDS)


def test_counts_and_actions_do_without_what_may_lag(it: Indexed) -> None:
    it.build()
    it.world.put("mail", tags={"tenant": "acme"})  # not recorded yet

    assert it.world.use.inspect.count("mail", ACME).count == 1


def test_of_state_and_indexed_value_the_one_with_fewer_tasks_is_read(it: Indexed) -> None:
    """The value's index is in order of creation, so the dead may be behind all that it shows."""
    it.build()
    dead = it.world.put("mail", *["{}"] * 6, tags={"tenant": "acme"})
    for task in it.world.take("mail", 6):
        it.world.say(task, "FAILED", retryable=False)
    for _ in range(6):
        it.clock.forward(1)
        it.world.put("mail", *["{}"] * 20, tags={"tenant": "acme"})
    (few,) = it.world.put("mail", tags={"tenant": "tiny"})
    it.record()

    listed = it.listed(replace(ACME, states=("DEAD",)), look_at=20, descending=True)
    assert {task.id for task in listed.tasks} == {*dead}
    assert (listed.cursor, listed.by_state, listed.by_creation) == (None, True, False)
    assert listed.looked_at <= 6 + 1
    none = it.listed(replace(ACME, states=("SUCCEEDED",)), look_at=20, descending=True)
    assert (none.tasks, none.cursor) == ((), None)
    waiting = TaskFilter(states=("ENQUEUED",), tags={"tenant": "tiny"})
    found = it.listed(waiting, look_at=20, descending=True)
    assert ([task.id for task in found.tasks], found.by_creation) == ([few], True)


def test_a_page_of_an_index_that_is_gone_is_not_gone_on_with(it: Indexed) -> None:
    it.build()
    it.world.put("mail", *["{}"] * 3, tags={"tenant": "acme"})
    it.record()
    cursor = it.listed(limit=1).cursor
    it.index()
    it.build()
    with pytest.raises(InvalidRequest, match="is of an index that was dropped; begin again"):
        it.listed(limit=1, cursor=cursor)


def test_the_index_of_a_queue_goes_with_it(it: Indexed) -> None:
    it.build()
    it.world.put("mail", tags={"tenant": "acme"})
    it.record()
    it.world.use.queues.delete("mail")
    it.clock.forward(60)
    for _ in range(3):
        it.build()

    it.world.queue(indexed_fields=FIELDS)
    it.build()
    assert it.found() == set()
