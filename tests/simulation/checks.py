"""What must hold after a run; each check is a promise of docs/semantics.md.

The log of writes is the witness: the lake's proof looks at it, and so do the checks here.
"""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from headrace.domain.ids import group_of, shown_lease
from headrace.domain.task import FINISHED, State, Task
from headrace.domain.times import micros_of
from headrace.domain.transitions import Spot, TaskWrite, last_spot_of, spot_of, transition
from headrace.history.changelog import line
from headrace.history.proof import REMEMBERED, conditions
from headrace.spark.lake.schemas import CHANGES
from tests.simulation.facts import Facts
from tests.simulation.faults import STALE_SECONDS
from tests.simulation.scenario import ENDS, Scenario
from tests.simulation.stage import START
from tests.simulation.world import SETTINGS_TTL, Refused, World

LIVE = (State.ENQUEUED, State.INFLIGHT)
Check = Callable[[World, Scenario, Facts], Iterator[str]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Add a check to those that every run makes."""
    CHECKS.append(function)
    return function


def all_failures(world: World, played: Scenario, facts: Facts) -> list[str]:
    """Return what each check found, named after it."""
    world.writes()
    return [f"{one.__name__}: {found}" for one in CHECKS for found in one(world, played, facts)]


def spots(world: World) -> dict[str, Spot]:
    """Return where each task that there is stands."""
    found: dict[str, Spot] = {}
    for write in world.writes():
        side = write.after or write.before
        assert side is not None
        spot = spot_of(write.after)
        if spot is None:
            found.pop(side.id, None)
        else:
            found[side.id] = spot
    return found


def seconds(at: datetime | int | None) -> float:
    """Return an instant of a task, or of the log, as virtual seconds since the start."""
    micros = micros_of(at) if isinstance(at, datetime) else at or 0
    return micros / 1e6 - START.timestamp()


@check
def every_change_is_legal(world: World, _played: Scenario, _facts: Facts) -> Iterator[str]:
    """The lake's proof: legal moves, no missing version, one valid lease, reports under it."""
    lines = [line(write, transition(write), shard="log", payload=False) for write in world.log]
    db, names = sqlite3.connect(":memory:"), CHANGES.names
    db.execute(f"CREATE TABLE changes ({', '.join(names)})")
    db.executemany(
        f"INSERT INTO changes VALUES ({', '.join('?' * len(names))})",  # noqa: S608 (our own names)
        [[_plain(one.get(name)) for name in names] for one in lines],
    )
    before = ", ".join(
        f"lag({name}) OVER (PARTITION BY task_id, created_at ORDER BY version, sequence + 0)"
        f" AS before_{name}"
        for name in REMEMBERED
    )
    chained = f"SELECT *, 1 AS born_here, {before} FROM changes"  # noqa: S608 (likewise)
    for kind, condition in conditions(second="1000000").items():
        rows = db.execute(
            f"SELECT task_id, version, move FROM ({chained}) WHERE {condition} LIMIT 3"  # noqa: S608 (likewise)
        )
        for task, version, move in rows:
            yield f"{kind} {task} version {version} ({move})"
    reused = db.execute(
        "SELECT lease_to, count(*) AS n FROM changes WHERE move = 'dequeue' GROUP BY 1 HAVING n > 1"
    )
    for lease, number in reused:
        yield f"reused_lease {lease}: {number} deliveries"
    db.close()


def _plain(value: Any) -> Any:
    return value if value is None or type(value) is int else str(value)


@check
def no_acknowledged_task_is_lost(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """Each has a birth in the log; the proof sees that it went no other than a legal way."""
    born = {write.after.id for write in world.log if write.after and not write.before}
    for call in facts.enqueued:
        for id_ in call.ids:
            if id_ not in born:
                yield f"{id_} of {call.queue} was CREATED, and is not in the log"


@check
def every_task_ends(world: World, _played: Scenario, _facts: Facts) -> Iterator[str]:
    """No task is starved: hours after the last fault, with workers that succeed, all have ended."""
    for id_, (queue, state) in spots(world).items():
        if state in LIVE:
            yield f"{id_} is still {state} in {queue}"


@check
def what_was_acknowledged_happened(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """A delivery and a report that were answered with OK are in the log."""
    leased: set[tuple[str, str | None]] = set()
    for write, _, after in _sides(world):
        if write.after is not None and after is not None and after[1] is State.INFLIGHT:
            task = write.after
            leased |= {(task.id, shown_lease(task)), (task.id, group_of(task.lease_id))}
    for id_, lease, _ in facts.delivered:
        if (id_, lease) not in leased:
            yield f"{id_} was delivered under {lease}, and the log does not say so"


@check
def limits_hold(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """Never more are in flight than a queue or a group may have."""
    inflight: Counter[Any] = Counter()
    for write, before, after in _sides(world):
        for spot, task, step in ((before, write.before, -1), (after, write.after, 1)):
            if spot is not None and spot[1] is State.INFLIGHT and task is not None:
                inflight[spot[0]] += step
                inflight[spot[0], task.group_key] += step
        if after is None or after[1] is not State.INFLIGHT or write.after is None:
            continue
        settings = played.queues.get(after[0], {})
        most = settings.get("dequeuing_settings", {}).get("max_inflight_tasks", 0)
        if most and inflight[after[0]] > most:
            yield f"{inflight[after[0]]} in flight in {after[0]} by {write.after.id}"
        groups = settings.get("groups", {})
        most = 1 if groups.get("mode") == "strict" else groups.get("max_inflight_per_group", 0)
        if most and inflight[after[0], write.after.group_key] > most:
            yield f"group {write.after.group_key} of {after[0]} has more than {most} in flight"


@check
def lists_are_whole(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """A list that is read page by page shows each task of the queue once."""
    for queue in played.queues:
        there = {id_ for id_, (name, _) in spots(world).items() if name == queue}
        if len(there) > 60:
            continue
        shown, cursor = list[str](), None
        while True:
            query = {"limit": 10} if cursor is None else {"limit": 10, "cursor": cursor}
            try:
                page = world.call("GET", f"/v1/queues/{queue}/tasks", query=query)
            except Refused:  # it was deleted and not made again
                break
            shown += [task["id"] for task in page["tasks"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        if sorted(shown) != sorted(there):
            missing, more = there - {*shown}, {*shown} - there
            yield f"the list of {queue} lacks {sorted(missing)} and has {sorted(more)} besides"


@check
def each_request_has_its_thread(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """Only dispatchers lease tasks of a queue with a target, each as many as it has threads."""
    holds: dict[str, tuple[str, str]] = {}
    for write, _, after in _sides(world):
        task = write.after or write.before
        assert task is not None
        holds.pop(task.id, None)
        if after is None or after[1] is not State.INFLIGHT:
            continue
        target = played.queues.get(after[0], {}).get("target")
        if target is None:
            continue
        worker = task.worker or ""
        if not worker.startswith("push:"):
            yield f"{task.id} of {after[0]} was leased to {worker}"
            continue
        holds[task.id] = worker, group_of(task.lease_id) or ""
        threads = sum(one == holds[task.id] for one in holds.values())
        if threads > target["max_concurrency"]:
            yield f"{threads} requests of {worker} are under way"


@check
def rates_hold(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """In any time: at most a full bucket, and what it has got since."""
    for queue in played.queues if not world.rates.stalls else ():
        if played.kind(queue) != "rate":
            continue
        times = sorted(seconds(task.started_at) for task in _deliveries(world, queue))
        for first, begin in enumerate(times):
            for number, end in enumerate(times[first:], 1):
                if number > 3 + 3 * (end - begin + 0.1):
                    yield f"{number} deliveries from {begin:.3f} to {end:.3f} in {queue}"
                    return


@check
def no_delivery_while_paused(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """Settings may be cached for a moment; a request that is under way may end."""
    for queue, paused, resumed in facts.pauses if not world.rates.stalls else ():
        for write in _deliveries(world, queue):
            at = seconds(write.started_at)
            if paused + SETTINGS_TTL + 0.5 < at < resumed:
                yield f"{write.id} was delivered at {at:.3f}, {queue} paused at {paused:.3f}"


@check
def due_tasks_are_delivered_in_order(  # noqa: C901 (one walk over the log)
    world: World, played: Scenario, facts: Facts
) -> Iterator[str]:
    """By due time, with priority by effective time: but for races and a stale index."""
    if world.rates.stalls or world.rates.dies_after or world.rates.dies_before:
        return
    for queue, settings in played.queues.items():
        if settings.get("shards", 1) > 1 or "groups" in settings or "target" in settings:
            continue
        if queue in facts.changed:
            continue
        aging = settings.get("priority", {}).get("aging_in_seconds", 0)
        waits: dict[str, tuple[float, float]] = {}  # effective time, since when it waits so
        for write, _, after in _sides(world):
            task = write.after or write.before
            assert task is not None
            was = waits.pop(task.id, None)
            at = seconds(write.recorded_at)
            if write.after is None or after is None or after[0] != queue:
                continue
            if after[1] is State.ENQUEUED:
                level = _LEVELS.get(str(task.priority), 0)
                due = seconds(task.due_at)
                waits[task.id] = due - level * aging, max(due, at)
            elif after[1] is State.INFLIGHT and task.last_move == "dequeue" and was is not None:
                for other, (effective, since) in waits.items():
                    if effective + _RACES < was[0] and since + _RACES < at:
                        yield f"{task.id} of {queue} overtakes {other} at {at:.3f}"


_LEVELS = {"high": 1, "low": -1}
_RACES = STALE_SECONDS + 3.0


@check
def fair_groups_share(  # noqa: C901, PLR0912 (one walk over the log)
    world: World, played: Scenario, _facts: Facts
) -> Iterator[str]:
    """The first waiting task of a group has few tasks of each other group before it."""
    if world.rates.stalls:
        return
    for queue, settings in played.queues.items():
        if settings.get("groups", {}).get("mode") != "fair":
            continue
        if settings["groups"].get("max_inflight_per_group"):
            continue
        weights = settings["groups"].get("weights", {})
        waiting: dict[str, tuple[str | None, float, Counter[str | None]]] = {}
        in_turn: dict[str, str | None] = {}  # the group of each task that waits for its turn
        for write, _, after in _sides(world):
            task = write.after or write.before
            assert task is not None
            at = seconds(write.recorded_at)
            stands = waiting.pop(task.id, None)
            in_turn.pop(task.id, None)
            if write.after is None or after is None or after[0] != queue:
                continue
            group = task.group_key
            if after[1] is State.ENQUEUED and task.turn is not None:
                if group not in in_turn.values():
                    waiting[task.id] = group, at, Counter()
                in_turn[task.id] = group
            elif after[1] is State.INFLIGHT and task.last_move == "dequeue":
                for other, since, before in waiting.values():
                    if since + _RACES < at and other != group and stands_in_turn(write.before):
                        before[group] += 1
                if stands is not None:
                    for other, number in stands[2].items():
                        share = weights.get(other or "", 1) / weights.get(group or "", 1)
                        if number > math.ceil(share) + 3:
                            yield f"{task.id} of group {group} waits for {number} of {other}"


def stands_in_turn(task: Task | None) -> bool:
    """Tell whether a task waits for its group's turn."""
    return task is not None and task.turn is not None


@check
def one_live_task_has_a_dedupe_key(world: World, _played: Scenario, _facts: Facts) -> Iterator[str]:
    """At any moment at most one live task of a queue holds a key."""
    holders: dict[tuple[str, str], dict[str, datetime | None]] = defaultdict(dict)
    for write, before, after in _sides(world):
        for spot, task in ((before, write.before), (after, write.after)):
            if spot is None or task is None:
                continue
            if task.dedupe_key is None or task.dedupe_until == "start":
                continue
            key = spot[0], task.dedupe_key
            if task is write.after and spot[1] in LIVE:
                waits = spot[1] is State.ENQUEUED
                holders[key][task.id] = task.expires_at if waits else None
            else:
                holders[key].pop(task.id, None)
            living = [
                id_
                for id_, until in holders[key].items()
                if until is None or micros_of(until) > write.recorded_at
            ]
            if len(living) > 1:
                yield f"{living} hold {key}"


@check
def ended_tasks_hold_no_dedupe_key(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """The lock of a dedupe key is removed when its holder ends.

    A key that is held until the start may stay locked if the process that delivers its task dies.
    """
    for queue in played.queues:
        for key, holder in world.store.key_locks(f"dedupe:{queue}").items():
            tasks = [write.after for write in world.log if write.after]
            if all(one.dedupe_until != "start" for one in tasks if one.id == holder):
                yield f"{holder} has ended and still holds {key} in {queue}"


@check
def a_purge_takes_what_was_there(  # noqa: C901 (one walk over the log)
    world: World, played: Scenario, facts: Facts
) -> Iterator[str]:
    """It takes tasks in a named state whose life in the queue began before it, and no others."""
    others = {"delete_task", "delete_queue", "action", "delete"}
    ops = {op.name for actor in played.actors for op in actor.ops}
    latest: dict[str, float] = {}
    for purge in facts.purges:
        latest[purge.queue] = max(purge.ended, latest.get(purge.queue, 0.0))
    for write, before, _ in _sides(world) if not ops & others else ():
        task = write.before
        if task is None or before is None or write.after is not None or write.forgotten:
            continue
        if played.kind(before[0]) in ("forgetful", "evicting") or task.schedule:
            continue
        if seconds(task.enqueued_at) > latest.get(before[0], -1.0):
            yield f"{task.id} was removed from {before[0]}, and entered after the last purge"
    last: dict[str, TaskWrite] = {}
    for write in world.log:
        side = write.after or write.before
        assert side is not None
        last[side.id] = write
    for id_, write in last.items():
        spot = spot_of(write.after)
        if spot is None:
            continue
        queue, state = spot
        for purge in facts.purges:
            if not purge.answered or purge.queue != queue or str(state) not in purge.states:
                continue
            if seconds(write.recorded_at) < purge.began:
                yield f"{id_} was {state} in {queue} before a purge that did not take it"


@check
def an_undo_restores_the_task(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """But for its version and lease, a task is as it was before the delete."""
    deleted: dict[str, Task] = {}
    for write, before, _ in _sides(world):
        if write.after is None:
            continue
        move = write.after.last_move
        if move in ("delete", "purge") and write.before is not None and before is not None:
            deleted[write.after.id] = write.before
        elif move == "undelete" and write.after.id in deleted:
            was, now = deleted.pop(write.after.id), write.after
            state, attempts, due = was.state, was.attempts, was.due_at
            changed = [name for name in _KEPT_BY_UNDO if getattr(was, name) != getattr(now, name)]
            if state is State.INFLIGHT:  # the delivery that the delete ended does not count
                attempts, due = attempts - 1, now.due_at
            # A task whose place in a group may be another's by now differs by a microsecond.
            # In strict order it goes behind all others.
            strict = played.kind(now.queue).startswith("strict")
            if now.attempts != attempts or (
                abs(now.due_at - due) > timedelta(microseconds=5) and not strict
            ):
                changed += ["attempts, due_at"]
            back = State.ENQUEUED if state is State.INFLIGHT else state
            if changed or now.state is not back:
                yield f"{now.id} was {state}, and is {now.state} with other {changed}"


_KEPT_BY_UNDO = (
    *("id", "created_at", "enqueued_at", "expires_at", "payload", "tags", "dedupe_key"),
    *("errors", "trail", "result", "dead_reason", "finished_at", "priority", "group_key"),
)


@check
def each_end_is_notified_once(world: World, played: Scenario, facts: Facts) -> Iterator[str]:
    """As ``on_end`` asks for: one event for each end of a task in the queue.

    If the queue is deleted before the recorder has read of an end, there is no event.
    """
    ends: Counter[tuple[str, str, int]] = Counter()
    events: Counter[tuple[str, str, int]] = Counter()
    may_lack: set[str] = set()
    for write, before, _ in _sides(world):
        task = write.after
        if task is None:
            continue
        ended = last_spot_of(task) if before is not None and before[1] in LIVE else None
        notifies = ended is not None and "on_end" in played.queues.get(ended[0], {})
        if ended is not None and ended[0] in facts.deleted:
            may_lack.add(task.id)
        if ended is not None and notifies and ended[1] in FINISHED:
            ends[task.id, f"task.{_ENDED[ended[1]]}", micros_of(task.finished_at or START)] += 1
        if write.before is None and '"type": "task.' in (task.payload or "").replace('":"', '": "'):
            body = json.loads(task.payload or "{}")
            at = micros_of(datetime.fromisoformat(body["timestamp"]))
            events[body["data"]["id"], body["type"], at] += 1
    for end in {*ends, *events}:
        if ends[end] < events[end] or (ends[end] > events[end] and end[0] not in may_lack):
            yield f"{ends[end]} ends and {events[end]} events: {end}"


_ENDED = {State.SUCCEEDED: "succeeded", State.DEAD: "dead"}


@check
def no_tick_is_missing(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """With ``missed: all`` every tick comes until the schedule is deleted."""
    dues: dict[tuple[str, str], set[int]] = defaultdict(set)
    for write in world.log:
        task, spot = write.after, spot_of(write.after)
        if task is None or spot is None or write.before is not None:
            continue
        if task.schedule and not task.id.startswith("tsk_"):
            dues[spot[0], task.schedule].add(micros_of(task.due_at))
    for (queue, name), schedule in facts.schedules.items():
        if facts.puts[queue, name] > 1 or schedule["missed"] != "all" or "dedupe_key" in schedule:
            continue
        if queue in facts.deleted:  # the schedule was put while its queue was being deleted
            continue
        every, found = schedule["every_seconds"], sorted(dues[queue, name])
        times = [schedule["since"], *map(seconds, found), facts.schedules_ended]
        for earlier, later in pairwise(times):
            if later - earlier > every + 8:
                yield f"{name} of {queue} has no tick between {earlier:.3f} and {later:.3f}"


@check
def spawned_tasks_are_created_once(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """However many there are, and whatever dies."""
    births = Counter(write.after.id for write in world.log if write.after and not write.before)
    for id_ in facts.spawned:
        if births[id_] != 1:
            yield f"the spawned task {id_} was created {births[id_]} times"


@check
def every_action_ends(world: World, _played: Scenario, facts: Facts) -> Iterator[str]:
    """Whatever dies, the service carries an action on to its end."""
    for id_ in facts.actions:
        status = world.call("GET", f"/v1/actions/{id_}")["status"]
        if status not in ("DONE", "CANCELLED", "FAILED"):
            yield f"action {id_} is {status}"


@check
def strict_groups_keep_their_order(world: World, played: Scenario, facts: Facts) -> Iterator[str]:
    """No task overtakes one that was acknowledged before its own enqueue began."""
    for queue in played.queues:
        if not played.kind(queue).startswith("strict"):
            continue
        calls = [call for call in facts.enqueued if call.queue == queue]
        uses = Counter(id_ for call in calls for id_ in call.ids)
        order: dict[str, tuple[float, float, Any]] = {
            id_: (call.began, call.ended, group)
            for call in calls
            for id_, group in zip(call.ids, call.groups, strict=True)
            if uses[id_] == 1  # the id of a deleted task may be used for a task of another group
        }
        stops = (*LIVE, State.DEAD) if played.kind(queue) == "strict halt" else LIVE
        stands: dict[str, State] = {}
        touched: set[str] = set()  # restarted, moved or restored: these go behind the others
        for write, _, after in _sides(world):
            task = write.after or write.before
            assert task is not None
            there = after if after is not None and after[0] == queue else None
            move = write.after.last_move if write.after else ""
            if move in ("restart", "undelete", "move"):
                touched.add(task.id)
            if there and move == "dequeue" and task.id in order and task.id not in touched:
                began, _, group = order[task.id]
                for other, state in stands.items():
                    first = order.get(other)
                    if (
                        first
                        and first[2] == group
                        and first[1] < began
                        and state in stops
                        and other not in touched
                        and other != task.id
                    ):
                        yield f"{task.id} overtakes {other} ({state}) in group {group} of {queue}"
            if there:
                stands[task.id] = there[1]
            else:
                stands.pop(task.id, None)


@check
def ticks_come_once(world: World, _played: Scenario, _facts: Facts) -> Iterator[str]:
    """One task of each tick; one that was taken back before it fell due does not count."""
    ticks: dict[tuple[str, int], tuple[str, str, int]] = {}
    delivered: dict[tuple[str, str, int], set[tuple[str, int]]] = defaultdict(set)
    for write, _, after in _sides(world):
        if write.after is None or after is None:
            continue
        task = write.after
        life = task.id, micros_of(task.created_at)
        if not write.before:
            if task.schedule and not task.id.startswith("tsk_"):
                ticks[life] = after[0], task.schedule, micros_of(task.due_at)
        elif life in ticks and after[1] is State.INFLIGHT:
            delivered[ticks[life]].add(life)
    for tick, lives in delivered.items():
        if len(lives) > 1:
            yield f"{sorted(lives)} are of one tick: {tick}"


@check
def batches_call_back_once_and_never_early(  # noqa: C901 (one walk over the log)
    world: World, _played: Scenario, facts: Facts
) -> Iterator[str]:
    """One callback for each event, after the last end; and where all is known, it is made."""
    state: dict[str, State | None] = {}
    ended: dict[str, bool] = {}
    calls: dict[str, Counter[str]] = defaultdict(Counter)
    for write, _, after in _sides(world):
        task = write.after or write.before
        assert task is not None
        new = bool(write.after and not write.before)
        if new and task.batch is not None and after and after[0] == ENDS:
            batch = facts.batches.get(task.batch.id)
            event = (task.payload or "").strip('"')
            calls[task.batch.id][event or "?"] += 1
            if batch and event in ("ended", "succeeded"):
                for member in batch.members:
                    if member in state and not ended.get(member):
                        yield f"{event} of {batch.id} while {member} had never ended"
        state[task.id] = after[1] if after else None
        if after is None or after[1] in FINISHED:
            ended[task.id] = True
    for id_, events in calls.items():
        for event, number in events.items():
            if number > 1 and event != "?":
                yield f"{number} callbacks {event} of {id_}"
    for id_, batch in facts.batches.items():
        if batch.sure and batch.closed and not calls[id_]:
            yield f"no callback of {id_}, whose {len(batch.members)} members have ended"


@check
def counters_converge(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """After the recorder has caught up, counts are what there is."""
    there: dict[str, Counter[str]] = defaultdict(Counter)
    for queue, state in spots(world).values():
        there[queue][str(state).lower()] += 1
    for queue in played.queues:
        try:
            counts = world.call("GET", f"/v1/queues/{queue}/stats")["counts"]
        except Refused:  # it was deleted and not made again
            assert queue not in there
            continue
        shown = {
            "enqueued": counts["scheduled"] + counts["ready"],
            "inflight": counts["inflight"],
            "succeeded": counts["succeeded"],
            "dead": counts["dead"],
        }
        real = {name: there[queue][name] for name in shown}
        if shown != real:
            yield f"{queue}: counted {shown}, there are {real}"


def _sides(world: World) -> Iterator[tuple[TaskWrite, Spot | None, Spot | None]]:
    for write in world.log:
        yield write, spot_of(write.before), spot_of(write.after)


def _deliveries(world: World, queue: str) -> Iterator[Task]:
    for write, before, after in _sides(world):
        if write.after is not None and after == (queue, State.INFLIGHT) != before:
            yield write.after
