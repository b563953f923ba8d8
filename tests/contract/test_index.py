"""What every store's index shows of a task, wherever it stands."""

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.task import Place, State
from tests.contract.conftest import World

pytestmark = pytest.mark.gate


def test_an_entry_has_the_due_time_beside_the_time_it_is_sorted_by(world: World) -> None:
    queue = world.queue()
    due = world.clock()
    world.put(queue)
    (waiting,) = world.store.entries(Place(queue, State.ENQUEUED, 0), limit=1).entries
    task = world.one(queue)
    (leased,) = world.store.entries(Place(queue, State.INFLIGHT, 0), limit=1).entries
    world.say(task, "SUCCEEDED")
    (done,) = world.store.entries(Place(queue, State.SUCCEEDED, 0), limit=1).entries

    assert (waiting.due_at, waiting.scheduled_at) == (due, due)
    assert leased.due_at == done.due_at == due
    assert leased.scheduled_at > due


def test_places_of_one_shard_are_told_apart_by_their_lane() -> None:
    places = [Place("mail", State.ENQUEUED, shard, lane) for lane in range(5) for shard in (0, 63)]

    labels = [place.label for place in places]

    assert len({*labels}) == len(labels)
    assert labels[:2] == [0, 63]  # lane 0 is where everything was before there were lanes
    assert [Place.labelled("mail", State.ENQUEUED, label) for label in labels] == places


def test_ids_are_found_by_how_they_begin_where_they_have_an_order(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    ids = [f"find-{number}" for number in range(5)]
    for number in (4, 2, 0):
        world.put(queue, id=ids[number])
    world.put(other, id=ids[3])
    world.put(other, id=ids[1])

    found = world.store.ids("find-", limit=3)

    if found is not None:  # DynamoDB's keys are hashed
        assert (list(found[0]), found[1]) == (ids[:3], True)
        assert world.store.ids("find-4", limit=3) == ([ids[4]], False)
        assert world.store.ids("nothing-", limit=3) == ([], False)
    for prefix, meant in (("find-2", [2]), ("find-1", []), ("find-", [4, 2, 0])):
        listed = world.use.inspect.list(queue, TaskFilter(id_prefix=prefix))
        assert {task.id for task in listed.tasks} == {ids[number] for number in meant}
