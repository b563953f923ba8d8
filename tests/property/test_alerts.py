"""Alerts, wherever a timer is interrupted or dies: each begins once and ends once.

Long, because what may happen and what is planted to be found are read together.

A timer's look is interrupted before each of its calls of the store, in turn, by what others may do
just then; or two of them are, each before each of its calls, and go on one after the other; or a
write is lost, or made and not answered.  Then looks go on, undisturbed.
Every way for a value to come and go is gone through with two timers.  Faults that were planted are
caught by the stories that they break.
"""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from headrace.domain.alerts import BEGAN, ENDED, QUIET_FOR, Measured
from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_task_id
from headrace.domain.queue import AlertSettings, QueueSettings
from headrace.ops.shared.stack_secret import IDS, DerivedIds, StackSecret
from headrace.store.base import Record, Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

MINUTE = 60.0
QUIET = int(QUIET_FOR.total_seconds() // MINUTE)
ALERTS = AlertSettings("told", oldest_ready_seconds=60)
FATES = ("lost", "unanswered")


class Interrupted:
    """A store before whose call number *at* (from 0) something else happens."""

    def __init__(self, store: Store, at: int, event: Callable[[], None]) -> None:
        self._store, self._left, self._event = store, at, event
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self.happened = True
                self._event()
            return method(*args, **options)

        return call


class Paused:
    """A look by a thread, which stops before its call number *at* until it is let go on."""

    def __init__(self, story: "Story", at: int) -> None:
        self._reached, self._free = threading.Event(), threading.Event()
        self.stopped = False
        self._store = Interrupted(story.store, at, self._stop)
        self._thread = threading.Thread(target=self._look, args=(story,))
        self._failed: BaseException | None = None
        self._thread.start()
        self._reached.wait()

    def _look(self, story: "Story") -> None:
        try:
            story.look(self._store)
        except BaseException as error:  # noqa: BLE001  it is raised by whoever waits for the look
            self._failed = error
        self._reached.set()

    def _stop(self) -> None:
        self.stopped = True
        self._reached.set()
        self._free.wait()

    def go_on(self) -> None:
        """Let it come to its end."""
        self._free.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class Dying:
    """A store whose next write of a record fails: before it took effect, or after."""

    def __init__(self, store: Store, fate: str) -> None:
        self._store, self._fate = store, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        if self._fate == "unanswered":
            self._store.put_records(writes, tasks=tasks)
        raise Unavailable(self._fate)


class Story:
    """A task waits for longer than its queue has a limit for; nobody has looked yet."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = cast("Store", MemoryStore())
        self.world = self.process()
        self.world.queue("told")
        self.world.queue("work", alerts=ALERTS)
        self.world.put("work")
        self.clock.forward(2 * MINUTE)
        self.messages: list[dict[str, Any]] = []

    def process(self, store: object = None) -> World:
        return new_world(cast("Store", store or self.store), self.clock)

    def look(self, store: object = None, **how: Any) -> None:
        """One look of a timer that has just begun."""
        self.clock.forward(0.001)
        judging = self.process(store).use.alerts
        for name, value in how.items():
            setattr(judging, name, value)
        judging.look().judge("work")

    def settle(self, value: float) -> None:
        use = self.process().use
        use.alerts.settle(use.queues.get("work"), ALERTS, Measured(oldest_ready=value))

    def change(self, alerts: AlertSettings | None) -> None:
        self.process().use.queues.replace("work", QueueSettings(alerts=alerts))
        self.clock.forward(1)

    def told(self) -> list[str]:
        """What has been told so far, in order, without the common beginning of types."""
        for task in self.world.take("told", 25):
            self.messages.append(json.loads(task.payload or ""))
        return [message["type"] for message in self.messages]

    def shown(self) -> bool:
        return bool(self.process().use.stats.of("work").alerts)


# ------------------------------------------------------------------------------ one look, disturbed


def other_timer(story: Story) -> None:
    story.look()


def done(story: Story) -> None:
    story.world.say(story.world.one("work"), "SUCCEEDED")


def no_limit(story: Story) -> None:
    story.change(AlertSettings("told", dead_per_minute=1))


def no_alerts(story: Story) -> None:
    story.change(None)


def anew(story: Story) -> None:
    story.change(None)
    story.change(ALERTS)


def another(story: Story) -> None:
    story.world.queue("others")
    story.change(replace(ALERTS, queue="others"))


def deleted(story: Story) -> None:
    story.process().use.queues.delete("work")
    story.clock.forward(1)


def replaced(story: Story) -> None:
    deleted(story)
    story.process().use.queues.create("work", QueueSettings(alerts=ALERTS))
    story.world.put("work")
    story.clock.forward(2 * MINUTE)


ALLOWED: dict[Callable[[Story], None], tuple[list[list[str]], bool]] = {
    other_timer: ([[BEGAN]], True),
    done: ([[], [BEGAN, ENDED]], False),
    no_limit: ([[], [BEGAN, ENDED]], False),
    no_alerts: ([[], [BEGAN]], False),
    anew: ([[BEGAN], [BEGAN, BEGAN]], True),
    another: ([[], [BEGAN]], True),
    deleted: ([[], [BEGAN]], False),
    replaced: ([[BEGAN], [BEGAN, BEGAN]], True),
}
"""What may be told in the end of what happens during a look, and whether the alert is on then."""


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("event", ALLOWED, ids=lambda event: event.__name__)
def test_whatever_happens_during_a_look_each_alert_is_told_once(
    event: Callable[[Story], None], before: int
) -> None:
    """*before*: so many looks were made already, so the alert is on."""
    allowed, on = ALLOWED[event]
    for at in itertools.count():
        story = Story()
        for _ in range(before):
            story.look()
        there = Interrupted(story.store, at, lambda story=story: event(story))  # type: ignore[misc]
        story.look(there)
        if not there.happened:
            event(story)
        for _ in range(QUIET + 1):
            story.look()
            story.clock.forward(MINUTE)
        told = story.told()
        assert told in allowed, (at, told)
        if event is not deleted:
            assert story.shown() == on
        others = story.world.take("others", 25) if event is another else ()
        assert len(others) + len(told) <= len(max(allowed, key=len))
        if not there.happened:
            break
    assert at >= 3  # queue, index, state


@pytest.mark.parametrize(
    ("event", "before"),
    [
        (done, 1),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in [(done, 0), (anew, 0), (anew, 1)]
        ),
    ],
)
def test_nor_is_one_told_twice_by_two_timers_that_are_both_interrupted(
    event: Callable[[Story], None], before: int
) -> None:
    """Each has made some of its calls when *event* happens; then either is the first to go on."""
    allowed, on = ALLOWED[event]
    calls = next(at for at in itertools.count() if not stops(at, before))
    assert calls >= 3
    for first, second, order in itertools.product(range(calls), range(calls), (1, -1)):
        story = Story()
        for _ in range(before):
            story.look()
        both = [Paused(story, first), Paused(story, second)]
        event(story)
        for one in both[::order]:
            one.go_on()
        for _ in range(QUIET + 1):
            story.look()
            story.clock.forward(MINUTE)
        told = story.told()
        assert told in allowed, (first, second, order, told)
        assert story.shown() == on


def stops(at: int, before: int) -> bool:
    """Tell whether a look has a call of this number."""
    story = Story()
    for _ in range(before):
        story.look()
    look = Paused(story, at)
    look.go_on()
    return look.stopped


@pytest.mark.parametrize("fate", FATES)
def test_a_timer_that_dies_has_told_and_noted_it_or_neither(fate: str) -> None:
    story = Story()
    for kind in (BEGAN, ENDED):
        with pytest.raises(Unavailable):
            story.look(Dying(story.store, fate))
        assert story.told().count(kind) == (fate == "unanswered")
        story.look()
        story.look()
        assert story.told().count(kind) == 1
        if kind == BEGAN:
            done(story)
            story.look()
            story.clock.forward(QUIET * MINUTE)
    assert story.told() == [BEGAN, ENDED]


@pytest.mark.parametrize("values", [*itertools.product((0.0, 60.0), repeat=4)])
def test_alerts_begin_and_end_in_turn_however_values_come_and_go(values: Sequence[float]) -> None:
    """Each value is held for half as long as makes an alert end, and seen by two timers."""
    story = Story()
    model: list[str] = []
    quiet = 0
    for value in values:
        for _ in range(-(-QUIET // 2)):
            on = len(model) % 2 == 1
            quiet = quiet + 1 if on and value < 60 else 0
            if value >= 60 and not on:
                model.append(BEGAN)
            elif quiet > QUIET:
                model.append(ENDED)
            story.settle(value)
            story.settle(value)
            story.clock.forward(MINUTE)
    assert story.told() == model


# ----------------------------------------------------------------------------- planted faults


class ByChance(DerivedIds):
    """Ids that are not derived."""

    def task_id(self, born: datetime, *_facts: str | float) -> str:
        return new_task_id(born)


class Unchecked:
    """A store that writes a state whatever version stands."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        ((record, _),) = writes
        stood = self._store.record(record.kind, record.name)
        version = None if stood is None else stood.version
        return self._store.put_records([(record, version)], tasks=tasks)


class Apart:
    """A store that writes the state, and only then the tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        self._store.put_records(writes)
        raise Unavailable("died before it told")


class Forgetful:
    """A store that knows no epochs: whatever alerts there were are those of the queue now."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        return kind != "alert" and self._store.drop_record(kind, name, version=version)

    def record(self, kind: str, name: str) -> Record | None:
        found = self._store.record(kind, name)
        queue = self._store.record("queue", name) if kind == "alert" else None
        if found is None or queue is None:
            return found
        return replace(found, body={**found.body, "epoch": queue.body["alerts_since"]})


@pytest.mark.slow
def test_states_written_unseen_with_ids_by_chance_are_caught() -> None:
    def twice(*, checked: bool, kind: type[DerivedIds]) -> bool:
        for at in itertools.count():
            story = Story()
            store = story.store if checked else cast("Store", Unchecked(story.store))
            there = Interrupted(store, at, story.look)
            story.look(there, ids=kind(StackSecret(story.store, IDS)))
            if story.told() != [BEGAN]:
                return True
            if not there.happened:
                return False
        raise AssertionError("a look has an end")

    assert twice(checked=False, kind=ByChance)
    assert not twice(checked=True, kind=ByChance)
    assert not twice(checked=False, kind=DerivedIds)


def test_telling_apart_from_the_state_is_caught() -> None:
    story = Story()
    with pytest.raises(Unavailable):
        story.look(Apart(story.store))
    story.look()
    assert story.told() == []  # and never will be


def test_alerts_of_the_queue_before_are_caught() -> None:
    def tells(store: Callable[[Store], object]) -> int:
        story = Story()
        there = store(story.store)
        story.look(there)
        story.process(there).use.queues.delete("work")
        story.clock.forward(1)
        story.process(there).use.queues.create("work", QueueSettings(alerts=ALERTS))
        story.world.put("work")
        story.clock.forward(2 * MINUTE)
        story.look(there)
        return len(story.told())

    assert tells(lambda store: store) == 2
    assert tells(Forgetful) == 1
