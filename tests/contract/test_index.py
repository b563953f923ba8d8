"""What every store's index shows of a task, wherever it stands."""

from headrace.domain.task import Place, State
from tests.contract.conftest import World


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
