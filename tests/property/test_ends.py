"""Webhooks on end, wherever the recorder dies: each end is told once.

Every write that a recorder makes of a batch is lost in turn, or made and not answered; whoever is
told is quick or slow; then the batch comes again, whole or in halves, to the same process or to
another.  Faults that were planted are caught by the stories that they break.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

import pytest

from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.fairness import GroupMode, GroupSettings, TurnTaking
from headrace.domain.ids import new_task_id
from headrace.domain.on_end import OnEnd
from headrace.domain.queue import QueueSettings
from headrace.domain.task import Task
from headrace.domain.write import TaskWrite
from headrace.history.ends import EndWebhooks
from headrace.history.recorder import Recording
from headrace.history.transitions import Transition
from headrace.ops.shared.stack_secret import IDS, DerivedIds, StackSecret
from headrace.store.base import Noting, Outcome, Record, Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

TASKS = 3
FATES = ("lost", "unanswered")


class Dying:
    """A store whose write number *at* (from 0) fails: before it took effect, or after."""

    def __init__(self, store: Store, at: int, fate: str) -> None:
        self._store, self._left, self._fate = store, at, fate
        self.died = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _write(self, made: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left != -1:
            return made()
        self.died = True
        if self._fate == "unanswered":
            made()
        raise Unavailable(self._fate)

    def commit(
        self, changes: Sequence[Change], *, partly: bool = False, noting: Noting | None = None
    ) -> list[Outcome]:
        done: list[Outcome] = []
        for change in changes:  # one that dies is made in part
            made = partial(self._store.commit, [change], partly=partly, noting=noting)
            done += self._write(made)
        return done

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        made = self._write(lambda: self._store.put_record(record, replaces=replaces, lazy=lazy))
        return cast("bool", made)

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        return cast("int", self._write(lambda: self._store.take_turns(queue, take)))


class Story:
    """Some tasks have ended; nobody has recorded that yet."""

    def __init__(self, *, history: int = 86_400, groups: GroupSettings | None = None) -> None:
        self.clock = ManualClock()
        self.stream = Streamed(MemoryStore(), self.clock)
        self.world = new_world(self.stream.store, self.clock)
        kept = QueueSettings(history_retention_in_seconds=history, groups=groups)
        self.world.use.queues.create("told", kept)
        self.world.queue("work", on_end=OnEnd("told"))
        self.ended: list[str] = []
        self.told: list[Task] = []
        self.writes: list[TaskWrite] = []
        self.end(TASKS)

    def end(self, number: int, queue: str = "work") -> None:
        self.world.put(queue, *["1"] * number)
        for task in self.world.take(queue, number):
            self.world.say(task, "SUCCEEDED")
            self.ended.append(task.id)
        self.writes = list(self.stream.taken())

    def process(self, store: Store | None = None, **others: Any) -> World:
        """Another process over the same tables; *others* are its use cases that are not usual."""
        world = new_world(store or self.stream.store, self.clock)
        return World(world.store, world.clock, world.use.but(**others)) if others else world

    def deliver(self) -> None:
        """Let the receiver take what there is, and be done with it."""
        for task in self.world.take("told", 25):
            self.told.append(task)
            self.world.say(task, "SUCCEEDED")

    def check(self) -> None:
        self.deliver()
        told = [json.loads(task.payload or "")["data"]["id"] for task in self.told]
        assert sorted(told) == sorted(self.ended)


def parts(writes: Sequence[TaskWrite], way: str) -> Iterator[Sequence[TaskWrite]]:
    middle = len(writes) // 2
    yield from [writes] if way == "whole" else [writes[:middle], writes[middle:]]


@pytest.mark.parametrize(
    ("groups", "history"),
    [
        (None, 86_400),
        *(
            pytest.param(groups, history, marks=pytest.mark.slow)
            for groups, history in [
                (None, 0),
                (GroupSettings(GroupMode.FAIR), 86_400),
                (GroupSettings(GroupMode.FAIR), 0),
            ]
        ),
    ],
)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("way", ["whole", "halves"])
@pytest.mark.parametrize("fate", FATES)
def test_each_end_is_told_once_wherever_the_recorder_dies(
    fate: str, way: str, *, quick: bool, history: int, groups: GroupSettings | None
) -> None:
    for at in itertools.count():
        story = Story(history=history, groups=groups)
        dying = Dying(story.stream.store, at, fate)
        recorded = story.process(cast("Store", dying)).use.recording.record(SHARD, story.writes)
        assert dying.died == (recorded.failed_at is not None) or fate == "unanswered"
        if quick:
            story.deliver()
            story.clock.forward(800)  # less than an id stays taken
        successor = story.process().use.recording
        for part in parts(story.writes, way):
            assert successor.record(SHARD, part).failed_at is None
        story.check()
        if not dying.died:
            break
    assert at > TASKS  # each webhook and the count were tried


def test_two_recorders_at_once_tell_once() -> None:
    """The second comes in where the first has told and not yet counted."""
    story = Story()
    second = story.process().use

    class Interrupted(EndWebhooks):
        def tell(self, writes: Any) -> None:
            super().tell(writes)
            second.recording.record(SHARD, story.writes)

    first = _with(story, Interrupted)
    first.record(SHARD, story.writes)
    story.check()


def test_queues_that_tell_one_another_come_to_an_end() -> None:
    story = Story()
    story.world.use.queues.replace("told", QueueSettings(on_end=OnEnd("work")))
    _until_quiet(story, story.world.use.recording)
    assert len(story.told) == TASKS


# ----------------------------------------------------------------------------- planted faults


class Random(EndWebhooks):
    """Whose webhooks have ids by chance."""

    __slots__ = ()


class OfWebhooksToo(EndWebhooks):
    """That tells of webhooks as of any other task."""

    def tell(self, writes: Any) -> None:
        super().tell(
            (write._replace(after=_Unmarked(write.after)) if write.after else write, change)
            for write, change in writes
        )


class _Unmarked:
    tells_of = None

    def __init__(self, view: Any) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


class Late(EndWebhooks):
    """That tells when it has been counted: the next time, if there is one."""

    kept: tuple[tuple[TaskWrite, Transition], ...] = ()

    def tell(self, writes: Any) -> None:
        waiting, self.kept = self.kept, tuple(writes)
        super().tell(waiting)


def _with(
    story: Story, kind: type[EndWebhooks], store: Store | None = None, ids: DerivedIds | None = None
) -> Recording:
    use = story.process(store).use
    usual = use.end_webhooks
    use.recording.ends = kind(
        usual.store,
        usual.queues,
        usual.texts,
        usual.group_lines,
        usual.now,
        ids=ids or usual.ids,
    )
    return use.recording


def _until_quiet(story: Story, recording: Recording) -> None:
    writes = story.writes
    for _ in range(10):
        recording.record(SHARD, writes)
        story.deliver()
        for task in story.world.take("work", 25):
            story.told.append(task)
            story.world.say(task, "SUCCEEDED")
        writes = list(story.stream.taken())
        if not writes:
            return
    raise AssertionError("it never ends")


def test_ids_by_chance_are_caught() -> None:
    class ByChance(DerivedIds):
        def task_id(self, born: datetime, *_facts: str | float) -> str:
            return new_task_id(born)

    def tells_twice(kind: type[DerivedIds]) -> int:
        story = Story()
        dying = cast("Store", Dying(story.stream.store, TASKS, "lost"))  # its count
        ids = kind(StackSecret(story.stream.store, IDS))
        _with(story, Random, dying, ids=ids).record(SHARD, story.writes)
        _with(story, Random, ids=ids).record(SHARD, story.writes)
        story.deliver()
        return len(story.told)

    assert tells_twice(DerivedIds) == TASKS
    assert tells_twice(ByChance) == 2 * TASKS


def test_webhooks_of_webhooks_are_caught() -> None:
    story = Story()
    story.world.use.queues.replace("told", QueueSettings(on_end=OnEnd("work")))
    with pytest.raises(AssertionError, match="never ends"):
        _until_quiet(story, _with(story, OfWebhooksToo))


def test_telling_after_the_count_is_caught() -> None:
    story = Story()
    _with(story, Late).record(SHARD, story.writes)  # and dies
    story.process().use.recording.record(SHARD, story.writes)
    with pytest.raises(AssertionError):
        story.check()
