"""A queue that is counted anew has true counters once the stream is drained, in whatever order.

Tasks change before, between and in the midst of the steps of a recount; the recorder comes to their
changes early or late, lost some before, and writes fail.  What happens within one second the stream
does not tell apart, so here no two things do.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.filters import standing_fault_of
from headrace.domain.task import Place
from headrace.domain.write import TaskWrite
from headrace.history.counters import Counters
from headrace.history.recorder import Recording
from headrace.history.recounting import Recounted
from headrace.history.tally import STATES
from headrace.store.base import CountPage, EntryPage
from headrace.store.memory import MemoryStore
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock
from tests.property.stores import everything
from tests.property.test_recording import COMMON, QUEUES, RecordedService, calls, standing
from tests.property.walks import in_part
from tests.streamed import SHARD, Unsure

Call = tuple[str, str, int, float]


class Midst:
    """Lets something happen after each page of a store that is counted.

    Of the dead, that is between the look at them in the index and the tasks' being read.
    """

    counted_at_once = 2
    recounting = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.then: Callable[[], None] = lambda: None

    def count(self, place: Place, **given: Any) -> CountPage:
        self.clock.forward(1)
        beside: Any = super()
        recounting, self.recounting = self.recounting, False  # in memory this looks at entries
        page: CountPage = beside.count(place, **given)
        self.clock.forward(1)
        self.then()
        self.recounting = recounting
        return page

    def entries(self, place: Place, **given: Any) -> EntryPage:
        beside: Any = super()
        if not self.recounting:
            page: EntryPage = beside.entries(place, **given)
            return page
        self.clock.forward(1)
        limit = min(given.pop("limit"), self.counted_at_once)
        page = beside.entries(place, **given, limit=limit)
        self.clock.forward(1)
        self.recounting = False
        self.then()
        self.recounting = True
        return page


class InMemory(Midst, MemoryStore):
    """In memory."""


class OnSqlite(Midst, SqliteStore):
    """On SQLite, in memory too."""


ON: dict[str, type[InMemory | OnSqlite]] = {"memory": InMemory, "sqlite": OnSqlite}


class RecountStory:
    """A service whose recorder is behind, and may lose what it has not come to."""

    def __init__(self, on: str = "memory") -> None:
        self.clock = ManualClock()
        self.midst = ON[on](self.clock)
        self.unsure = Unsure(self.midst)
        self.life = RecordedService(self.unsure.store, self.clock)
        self.world = self.life.world
        self.backlog: list[TaskWrite] = []
        self.cursors: dict[str, str | None] = {}
        self.recorders = [self.recorder(), self.recorder()]

    def recorder(self) -> Recording:
        """Return a recorder that starts cold; those that are kept know what they wrote last."""
        return Recording(Counters(self.life.stream.store, self.clock, self.clock.forward))

    def change(self, call: Call) -> None:
        """Let something happen to tasks, while nothing goes wrong."""
        fate, self.unsure.fate = self.unsure.fate, iter(())
        self.clock.forward(1)
        self.life.call(*call)
        self.backlog += self.life.stream.taken()
        self.unsure.fate = fate

    def record(self, number: int, recorder: Recording | None = None) -> None:
        """Let the recorder come to so many changes; what it does not take comes again."""
        batch = self.backlog[:number]
        if batch and (recorder or self.recorder()).record(SHARD, batch).failed_at is None:
            del self.backlog[:number]

    def lose(self, number: int) -> None:
        """Let so many changes be too old for the stream."""
        del self.backlog[:number]

    def step(self, queue: str) -> Recounted | None:
        """Take a step of a recount, the first or the next; None if it has to be repeated."""
        self.clock.forward(1)
        self.midst.recounting = True
        try:
            step = self.world.use.recounting.step(queue, self.cursors.get(queue))
        except Unavailable:
            return None
        except InvalidRequest:
            self.cursors[queue] = None  # given up: begin anew
            return None
        finally:
            self.midst.recounting = False
        self.cursors[queue] = step.cursor
        return step

    def truth(self, queue: str) -> list[int]:
        there = [task for task in everything(self.midst) if task.spent is None]
        places = Counter(task.state for task in there if task.queue == queue)
        cancelled = sum(task.cancelled for task in there if task.queue == queue)
        return [*(places[state] for state in STATES), cancelled]

    def reported(self, queue: str) -> list[int]:
        counters = self.world.use.recording.counters
        return counters.counts(queue, counters.buffers())

    def failing(self, queue: str) -> dict[str, int]:
        there = [task for task in everything(self.midst) if task.spent is None]
        failed = (standing_fault_of(task) for task in there if task.queue == queue)
        return Counter(name for name in failed if name)

    def drain(self) -> None:
        """Let the recorder come to everything."""
        while self.backlog:
            self.record(20)


class RandomStory(RecountStory):
    """A story in which acts are drawn by *chance*."""

    def __init__(self, on: str, history: Sequence[Call], chance: random.Random) -> None:
        super().__init__(on)
        self.chance = chance
        self.history = iter(history)
        recounting = self.world.use.recounting
        recounting.counters.sleep = self.clock.forward
        recounting.patience = chance.choice([-1, 3, 5])
        self.midst.then = self.in_the_midst

    def act(self, name: str) -> None:
        match name:
            case "change":
                for call in islice(self.history, 1):
                    self.change(call)
            case "record":
                recorder = self.chance.choice([*self.recorders, None])
                self.record(self.chance.choice((1, 3, 20)), recorder)
            case "lose":
                self.lose(self.chance.choice((1, 2, 5)))
            case "step":
                self.step(self.chance.choice(QUEUES))

    def in_the_midst(self) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            self.act(self.chance.choice(("change", "change", "change", "record")))

    def recount(self, queue: str) -> None:
        """Begin anew and go on to the end, while tasks change and the recorder works."""
        self.cursors[queue] = None
        for _ in range(60):
            step = self.step(queue)
            if step is not None and step.cursor is None:
                return
            self.act(self.chance.choice(("change", "record")))
        raise AssertionError("the recount does not come to an end")


FATES = st.lists(st.sampled_from(["lost", "unanswered", *[None] * 12]), max_size=60)
ACTS = st.sampled_from(("change", "change", "record", "record", "lose", "step"))


@pytest.mark.slow
@pytest.mark.parametrize("on", ON)
@given(
    st.lists(calls, min_size=30, max_size=90),
    st.lists(ACTS, max_size=30),
    st.randoms(use_true_random=False),
    FATES,
)
@settings(COMMON, max_examples=in_part(30))
def test_whatever_happens_meanwhile_the_counters_are_true_once_the_stream_is_drained(
    on: str, history: list[Call], acts: list[str], chance: random.Random, fates: list[str | None]
) -> None:
    story = RandomStory(on, history, chance)
    with story.unsure.failing(*fates):
        for name in acts:
            story.act(name)
        for queue in QUEUES:  # from here on nothing is lost any more
            story.recount(queue)
    for call in story.history:
        story.change(call)
        story.act("record")
    story.drain()

    for queue in QUEUES:
        assert story.reported(queue) == story.truth(queue)
        assert standing(story.world.use.recording.counters, queue) == story.failing(queue)


SUCCEEDS: list[Call] = [("take", "plain", 0, 0), ("say", "plain", 0, 0)]
IS_RUN: list[Call] = [("enqueue", "plain", 1, 30), ("run", "plain", 0, 0)]
IS_CANCELLED: list[Call] = [("cancel", "plain", 0, 0), ("restart", "plain", 0, 0)]
FAILS: list[Call] = [("take", "plain", 0, 0), ("say", "plain", 2, 0)]
COMES_BACK: list[Call] = [("move", "plain", 0, 0), ("move", "bare", 0, 0)]

LIVES = [SUCCEEDS, IS_RUN, COMES_BACK, IS_CANCELLED, FAILS]
LONGER = [("sqlite", 2), ("memory", 4)]


@pytest.mark.parametrize(
    ("on", "steps", "life"),
    [
        ("memory", 2, SUCCEEDS),
        *(pytest.param("memory", 2, life, marks=pytest.mark.slow) for life in LIVES[1:]),
        *(
            pytest.param(*longer, life, marks=pytest.mark.slow)
            for longer in LONGER
            for life in LIVES
        ),
    ],
)
def test_in_every_order_of_a_small_case(on: str, life: list[Call], steps: int) -> None:
    """Two changes, the recorder that comes to each, and a recount in so many steps."""
    in_vain: tuple[str, ...] = ()
    for order in sorted(map("".join, set(permutations("ccrr" + "s" * steps)))):
        if not order.startswith(in_vain):
            in_vain += tuple(told_in(order, on, life, steps))


def told_in(order: str, on: str, life: list[Call], steps: int) -> Iterator[str]:
    """Tell a life in an *order*, and judge it.

    Where the recorder comes to nothing, which is what another order shows without it, yield how
    the order begins instead.
    """
    story = RecountStory(on)
    story.world.use.recounting.patience = 2.5 if steps == 2 else -1
    story.midst.counted_at_once = 100
    story.change(("enqueue", "plain", 0, 0))
    story.lose(9)  # so the counters say that the queue is empty
    calls_left, taken = iter(life), 0
    for at, act in enumerate(order):
        if act == "c":
            before = len(story.backlog)
            story.change(next(calls_left))
            assert len(story.backlog) > before, "nothing changes"
        elif act == "s":
            step = story.step("plain")
            assert step is not None
            taken += 1
            assert (step.cursor is None) == (taken == steps)
        elif story.backlog:
            story.record(1)
        else:
            yield order[: at + 1]
            return
    story.drain()

    assert story.reported("plain") == story.truth("plain"), order
    found = standing(story.world.use.recording.counters, "plain")
    assert found == story.failing("plain"), order
