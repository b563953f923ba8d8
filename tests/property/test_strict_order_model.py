"""Strict order of a group, all orders of a small case: the model that the code is built after.

Long, because a model is read as a whole: steps, rules, and the faults they rule out.

Each task of a group takes a place in its line before it is inserted: a number, and the name of the
one that took the place before it.  One slot names the place whose task may be delivered.  Tasks are
put in by producers that may die in between, or find then that it is there already, the index lags
by less than ten seconds, processes that deliver may die between any two steps, and operators delete
and restart.  The line also has *notes*: of a task that was deleted before anybody had it, or was
not put in or moved in, whose place was before its own; and where the dead halt their group, of one
that is about to die so.  Nothing here is the product's.
"""

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import pytest


class Spot(NamedTuple):
    """A task, and the number of the place that it had or has in the line."""

    task: int
    seq: int


class Task(NamedTuple):
    """A task: where it stands, its place, and whose is the one before.

    ``due`` tells its waits apart.  ``seen``: the index shows it; ``old``: it was inserted ten
    seconds ago.  ``first`` are those that were acknowledged when it took its place.  ``untold``: it
    has gone, and whoever did that has not noted it; ``lost``: it has left a place, and nobody will;
    ``again``: it was to be moved in, and that is tried for the second time.
    """

    state: str = "none"  # taken, waits, flies, ended, dead, expired, gone
    seq: int = 0
    after: Spot | None = None
    due: int = 0
    delivered: bool = False
    seen: bool = False
    old: bool = False
    first: frozenset[int] = frozenset()
    untold: bool = False
    lost: bool = False
    again: bool = False


Notes = frozenset[tuple[Spot, Spot | None]]


class Process(NamedTuple):
    """What step comes next: for which task at which place and due time, and instead of whom."""

    step: str = "idle"
    spot: Spot | None = None
    due: int = 0
    expects: Spot | None = None
    old: bool = False
    calls: int = 0


class Group(NamedTuple):
    """A group: its line, its slot, its tasks, and those who deliver them."""

    tasks: tuple[Task, ...]
    processes: tuple[Process, ...]
    seq: int = 0
    tail: Spot | None = None
    slot: Spot | None = None
    notes: Notes = frozenset()
    wrong: str = ""

    def task(self, number: int, task: Task) -> "Group":
        tasks = (*self.tasks[:number], task, *self.tasks[number + 1 :])
        return self._replace(tasks=tasks)

    def process(self, number: int, then: Process) -> "Group":
        """Let a process be at *then*; they are kept in order, for it matters not which is where."""
        others = (*self.processes[:number], *self.processes[number + 1 :])
        processes = sorted((then, *others), key=_by_what_it_is) if others else (then,)
        return self._replace(processes=tuple(processes))

    def noted(self, spot: Spot, before: Spot | None) -> "Group":
        """Note who came before *spot*: before the whole run of those that are gone by now."""
        notes = dict(self.notes)
        if spot in notes:
            return self
        if self.has_left(spot) and before is not None and before in notes and self.has_left(before):
            before = notes.pop(before)
        return self._replace(notes=frozenset({**notes, spot: before}.items()))

    def has_left(self, spot: Spot) -> bool:
        """Tell whether its task is gone."""
        task = self.tasks[spot.task]
        return task.state == "gone" or task.seq != spot.seq

    def inserted(self) -> frozenset[int]:
        there = (at for at, one in enumerate(self.tasks) if one.state not in ("none", "taken"))
        return frozenset(there)


def _by_what_it_is(process: Process) -> tuple[object, ...]:
    spots = process.spot or (), process.expects or ()
    return (process.step, process.due, process.old, process.calls, *spots)


NO_POINTER = "nobody asks for the one before"
NO_WAIT = "who is missing is believed gone at once"
UNDELIVERED = "what ended undelivered vouches for those before it"
EAGER = "what waits for its retry is over"
DEAD_ENDS = "a dead one counts as an end though it is to halt"
NO_NUMBER = "a place is a task's for good, wherever in the line that is by now"
BLIND = "a slot is written whatever it names by now"
ANY_TIME = "a delivery does not ask for the due time"
ABANDONED = "nobody completes what a dead process has reserved"
LATE = "a producer inserts however long ago it took its place"
UNTOLD = "nobody notes what is deleted"
UNUSED = "nobody notes a place whose task is not put in"
UNMOVED = "nobody notes a place whose task was to be moved in, and has changed"
UNANNOUNCED = "who dies undelivered is noted nowhere, though it halts"

SOON_FOUND = [NO_POINTER, NO_WAIT, EAGER, NO_NUMBER, ANY_TIME, ABANDONED, LATE]
NEEDS = {UNDELIVERED: (3, (1,)), ANY_TIME: (2, (1, 1))}
"""Tasks, and calls of each process, where two tasks and two calls of one show nothing."""

_STOPS = ("waits", "flies")
_LAST = 2  # the due time of a last life


class Rules(NamedTuple):
    """Whether the dead halt their group, what is built wrong, and whether tasks are moved in."""

    halt: bool = False
    fault: str = ""
    moves: bool = False

    def over(self, spot: Spot, task: Task) -> bool:
        """Tell whether the place is done with: for good, but for a restart under halt."""
        if task.state in ("none", "taken", "gone"):
            return True
        if task.seq != spot.seq and self.fault != NO_NUMBER:
            return True
        if task.state in ("dead", "expired"):
            return not self.halt or self.fault == DEAD_ENDS
        if task.state == "waits" and self.fault == EAGER:
            return True
        return task.state not in _STOPS

    def may_follow(self, group: Group, process: Process) -> bool:
        """Tell whether the task's predecessor lets it go: the slot is over as it is."""
        own = group.tasks[process.spot.task] if process.spot else Task()
        after, notes = own.after, dict(group.notes)
        while after is not None and not self.settled(group, after):
            before = group.tasks[after.task]
            if not self.over(after, before):
                return False
            if after in notes:
                after = notes[after]
            elif before.state == "expired" and before.seq == after.seq:
                after = before.after
            else:
                stopped = any(
                    spot.seq < own.seq and not self.over(spot, group.tasks[spot.task])
                    for spot in notes
                )
                return (process.old and not stopped) or self.fault == NO_WAIT
        return True

    def settled(self, group: Group, spot: Spot) -> bool:
        """Tell whether *spot* vouches for all before it, with the slot over."""
        task, slot = group.tasks[spot.task], group.slot
        if spot == slot or self.fault == NO_POINTER:
            return True
        if slot is not None and spot.seq <= slot.seq and self.fault != NO_NUMBER:
            return True
        if self.fault == UNDELIVERED and task.state == "expired":
            return True
        return task.state in ("ended", "dead") and task.seq == spot.seq and self.over(spot, task)


def events(group: Group, rules: Rules) -> Iterator[Group]:
    """What producers, the index, workers and operators do."""
    for at, task in enumerate(group.tasks):
        match task.state:
            case "none" if at == 0 or group.tasks[at - 1].state != "none":  # they do not differ
                yield _join(group, at, task._replace(state="taken"))
            case "taken":
                yield from _taken(group, at, task, rules)
            case "waits":
                yield from _waits(group, at, task, rules)
            case "flies":
                yield group.task(at, task._replace(state="ended"))
                yield group.task(at, task._replace(state="dead"))
                if not task.due:  # a retry
                    back = task._replace(state="waits", due=1, seen=True)
                    yield group.task(at, back)
            case "dead" | "expired" if task.due < _LAST:
                yield from _dead(group, at, task, rules)
            case "gone" if task.untold:
                yield _told(group, at, task, rules)


def _taken(group: Group, at: int, task: Task, rules: Rules) -> Iterator[Group]:
    """It is put in; or is there already, or another has its key: then the place stays empty.

    Or it was to be moved in, and has changed: then that is tried again, with another place.
    """
    late = any(one.old and one.seq > task.seq for one in group.tasks)
    if late and rules.fault != LATE:
        yield _join(group, at, task._replace(lost=True))
        return
    overtaken = group.slot is not None and group.slot.seq > task.seq
    yield group.task(at, task._replace(state="waits", lost=task.lost or overtaken))
    yield group.task(at, task._replace(state="gone", untold=rules.fault != UNUSED))
    if rules.moves and not task.again:
        left = group.noted(Spot(at, task.seq), task.after)
        if rules.fault == UNMOVED:
            left = group
        yield _join(left, at, task._replace(again=True))


def _told(group: Group, at: int, task: Task, rules: Rules) -> Group:
    """Whoever has deleted it notes that."""
    told = group.task(at, task._replace(untold=False))
    return told if rules.fault == UNTOLD else told.noted(Spot(at, task.seq), task.after)


def _dead(group: Group, at: int, task: Task, rules: Rules) -> Iterator[Group]:
    """An operator deletes it, or restarts it: at the tail, but for the one that halts."""
    yield group.task(at, task._replace(state="gone", untold=not task.delivered))
    again = task._replace(state="waits", due=task.due + 1, seen=True)
    if rules.halt and (group.slot is None or group.slot.seq <= task.seq):
        yield group.task(at, again)
    elif not task.due and task.delivered:  # one of those that have not been retried is enough
        fresh = again._replace(due=_LAST, seen=False, old=False, delivered=False)
        yield _join(group, at, fresh)


def _join(group: Group, at: int, task: Task) -> Group:
    """Take the next place of the line."""
    own = Spot(at, group.seq + 1)
    joined = task._replace(seq=own.seq, after=group.tail, first=group.inserted() - {at})
    return group._replace(seq=own.seq, tail=own).task(at, joined)


def _waits(group: Group, at: int, task: Task, rules: Rules) -> Iterator[Group]:
    if not task.seen:
        yield group.task(at, task._replace(seen=True))
    elif not task.old and not any(_hidden(one) for one in group.tasks if one.seq < task.seq):
        yield group.task(at, task._replace(old=True))
    if not task.delivered:
        yield group.task(at, task._replace(state="gone", untold=True))
        own = Spot(at, task.seq)
        if not rules.halt or rules.fault == UNANNOUNCED or own in dict(group.notes):
            yield group.task(at, task._replace(state="expired"))
        else:
            yield group.noted(own, task.after)


def _hidden(task: Task) -> bool:
    return task.state == "waits" and not task.seen


def steps(group: Group, number: int, rules: Rules) -> Iterator[Group]:
    """What one process may do next."""
    process = group.processes[number]
    spot, done = process.spot, Process(calls=process.calls)
    if spot is None:
        if process.calls:
            yield from _begin(group, number)
        return
    yield group.process(number, Process())  # it dies
    match process.step:
        case "look":
            yield from _look(group, number, rules)
        case "take":
            if group.slot == process.expects or rules.fault == BLIND:
                kept = frozenset(one for one in group.notes if one[0].seq > spot.seq)
                taken = group._replace(slot=spot, notes=kept)
                yield taken.process(number, process._replace(step="deliver"))
            else:
                yield group.process(number, done)
        case "deliver":
            task = group.tasks[spot.task]
            then = group.process(number, done)
            if task.state == "waits" and (task.due == process.due or rules.fault == ANY_TIME):
                yield _delivered(then, spot.task, rules)
            else:
                yield then


def _begin(group: Group, number: int) -> Iterator[Group]:
    """It meets the first that the index shows: of those that came, and of those that came back."""
    calls = group.processes[number].calls - 1
    shown = [
        (task.seq, at) for at, task in enumerate(group.tasks) if task.state == "waits" and task.seen
    ]
    for returned in (False, True):
        of_lane = [one for one in shown if group.tasks[one[1]].delivered is returned]
        if of_lane:
            seq, at = min(of_lane)
            task = group.tasks[at]
            met = Process("look", Spot(at, seq), task.due, old=task.old, calls=calls)
            yield group.process(number, met)


def _look(group: Group, number: int, rules: Rules) -> Iterator[Group]:
    """It reads the line, then who holds the slot and who is before its own."""
    process, there = group.processes[number], group.slot
    if there == process.spot and rules.fault != ABANDONED:
        yield group.process(number, process._replace(step="deliver"))
    elif there is not None and not rules.over(there, group.tasks[there.task]):
        holder = group.tasks[there.task]
        if holder.state == "waits" and rules.fault != ABANDONED:
            instead = process._replace(step="deliver", spot=there, due=holder.due)
            yield group.process(number, instead)
    elif process.spot and _as_met(group, process) and rules.may_follow(group, process):
        yield group.process(number, process._replace(step="take", expects=there))


def _as_met(group: Group, process: Process) -> bool:
    task = group.tasks[process.spot.task] if process.spot else Task()
    return task.state == "waits" and task.due == process.due


def _delivered(group: Group, at: int, rules: Rules) -> Group:
    """Deliver a task, and note what is wrong with that."""
    task = group.tasks[at]
    wrong = ""
    if any(one.state == "flies" for one in group.tasks):
        wrong = "two are in flight"
    first = [group.tasks[one] for one in task.first]
    stops = (*_STOPS, "dead") if rules.halt else _STOPS
    if any(one.state in stops and one.seq < task.seq for one in first):
        wrong = "one that came before is not done"
    dead = ("dead", "expired")
    if rules.halt and any(one.state in dead and one.seq < task.seq for one in group.tasks):
        wrong = "one that came before is dead"
    then = group.task(at, task._replace(state="flies", delivered=True))
    return then._replace(wrong=wrong)


def stuck(group: Group, rules: Rules) -> bool:
    """Tell whether nothing is delivered though nothing is in the way.

    What has been waiting for long must go, whoever has died; and at once, where nobody has.
    """
    if any(task.state == "flies" for task in group.tasks):
        return False
    waiting = [task for task in group.tasks if task.state == "waits"]
    if not waiting or not all(task.seen for task in waiting):
        return False
    unclear = any(task.state == "taken" or task.untold or task.lost for task in group.tasks)
    if unclear and not all(task.old for task in waiting):
        return False
    halted = any(task.state in ("dead", "expired") for task in group.tasks)
    if rules.halt and halted:
        return False
    met = Group(group.tasks, (Process(calls=1),), slot=group.slot, notes=group.notes)
    return not _delivers(met, rules)


@lru_cache(maxsize=100_000)  # many states differ by the processes that they have, and by no more
def _delivers(group: Group, rules: Rules) -> bool:
    """Tell whether a process that comes now, and does not die, delivers something."""
    todo = [group]
    while todo:
        one = todo.pop()
        if any(task.state == "flies" for task in one.tasks):
            return True
        process = one.processes[0]
        todo += [
            then
            for then in steps(one, 0, rules)
            if process.spot is None
            or then.processes[0].spot
            or any(task.state == "flies" for task in then.tasks)
        ]
    return False


def explore(
    tasks: int, calls: tuple[int, ...], rules: Rules, *, most: int = 10_000_000
) -> tuple[int, str]:
    """Return how many states there are, and what is wrong in one of them if anything is.

    It looks at *most*, those with the fewest steps before them first.
    """
    begin = Group((Task(),) * tasks, tuple(Process(calls=count) for count in calls))
    seen, todo = {begin}, deque([begin])
    while todo and len(seen) < most:
        group = todo.popleft()
        after = [*events(group, rules)]
        for number in range(len(calls)):
            after += steps(group, number, rules)
        for then in after:
            if then not in seen:
                if then.wrong or stuck(then, rules):
                    return len(seen), then.wrong or "stuck"
                seen.add(then)
                todo.append(then)
    return len(seen), ""


@pytest.mark.parametrize("rules", [Rules(moves=True), Rules(halt=True)])
def test_no_order_of_steps_lets_a_task_overtake_or_leaves_its_group_stuck(rules: Rules) -> None:
    states, wrong = explore(2, (1,), rules, most=12_000)  # all are among those of the next two

    assert not wrong
    assert states > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "rules"), [((1, 1), Rules()), ((2,), Rules(halt=True))])
def test_nor_does_any_of_more_calls(calls: tuple[int, ...], rules: Rules) -> None:
    assert not explore(2, calls, rules)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "rules"), [(3, Rules(halt=True)), (2, Rules(moves=True))])
def test_nor_does_any_of_more_tasks_or_with_moves(tasks: int, rules: Rules) -> None:
    assert not explore(tasks, (1,), rules, most=150_000)[
        1
    ]  # nearly three times what UNANNOUNCED takes


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*SOON_FOUND, UNDELIVERED])
def test_the_model_finds_each_of_these_mistakes(fault: str) -> None:
    tasks, calls = NEEDS.get(fault, (2, (2,)))
    assert explore(tasks, calls, Rules(fault=fault))[1]


@pytest.mark.slow
def test_and_a_slot_that_is_written_whatever_it_names() -> None:
    assert explore(2, (2, 1), Rules(fault=BLIND))[1]


@pytest.mark.slow
def test_and_a_dead_one_that_does_not_halt_its_group() -> None:
    assert explore(2, (1, 1), Rules(halt=True, fault=DEAD_ENDS))[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("halt", "fault"), [(True, UNTOLD), (False, UNTOLD), (False, UNUSED), (False, UNMOVED)]
)
def test_and_that_nobody_notes_which_place_is_empty(halt: bool, fault: str) -> None:  # noqa: FBT001
    rules = Rules(halt=halt, fault=fault, moves=fault == UNMOVED)
    assert explore(2, (1,), rules)[1] == "stuck"


@pytest.mark.slow
def test_and_that_nobody_notes_who_is_about_to_die() -> None:
    assert (
        explore(3, (1,), Rules(halt=True, fault=UNANNOUNCED))[1] == "one that came before is dead"
    )
