"""What comes about by itself: ticks of schedules, lapsed leases, counts from the stream.

It is set going first and looked for last, because scheduler and reaper run once a minute.
"""

from collections import Counter
from typing import Final

from headrace.cli.checks.run import EXACT, MINUTELY_SECONDS, Smoke, expect, words
from headrace.cli.checks.wire import Wrong
from headrace.cli.output import many
from headrace.client.calls import queues, tasks, work
from headrace.client.sending import NewTask
from headrace.domain.errors import NotFound
from headrace.domain.task import State
from headrace.wire.tasks import Task

EVERY_SECONDS: Final = 182
"""A put enqueues the ticks of the next three minutes by itself: this one only the scheduler can."""

_STREAM_SECONDS: Final = 60.0
_STATES: Final = (State.ENQUEUED, State.INFLIGHT, State.SUCCEEDED, State.DEAD)
_COUNTED: Final = (
    ("tasks", "task: enqueue"),
    ("leased", "task: dequeue"),
    ("reported", "task: report"),
    ("restarted", "tasks: restart"),
    ("grouped", "lease: open"),
    ("large", "answer of 1 MB"),
)
"""Where one of these went wrong, nobody knows what was done."""


def put_schedule(smoke: Smoke) -> str:
    """Put a schedule whose first tick is too far ahead for the call itself."""
    smoke.at["put"] = smoke.now()
    made = smoke.send(
        queues.put_schedule(
            smoke.other, smoke.name, every_seconds=EVERY_SECONDS, payload={"tick": True}
        )
    )
    expect((made.name, made.every_seconds), (smoke.name, EVERY_SECONDS), "the schedule")
    smoke.kept["schedule"], smoke.there["put"] = smoke.name, made.created_at
    return f"every {EVERY_SECONDS} s"


def get_schedule(smoke: Smoke) -> str:
    """Show it."""
    shown = smoke.send(queues.get_schedule(smoke.other, smoke.need("schedule", "schedule: put")))
    expect((shown.paused, shown.payload), (False, {"tick": True}), "the schedule")
    listed = smoke.wire.each(queues.list_schedules(smoke.other))
    expect([one.name for one in listed], [shown.name], "the list")
    if shown.next_run_at is None:
        return "no next run"
    return f"next run at {shown.next_run_at:%H:%M:%SZ}"


def run_schedule(smoke: Smoke) -> str:
    """Enqueue a task of it now."""
    made = smoke.send(queues.run_schedule(smoke.other, smoke.need("schedule", "schedule: put")))
    expect(made.outcome, "CREATED", "the outcome")
    smoke.kept["by hand"] = str(made.id)
    return "CREATED"


def ticked(smoke: Smoke) -> str:
    """Wait until the scheduler has enqueued its first tick."""
    name, since = smoke.need("schedule", "schedule: put"), smoke.since("put", "schedule: put")
    by_hand = smoke.kept.get("by hand")
    pages = tasks.list_tasks(smoke.other, state="SCHEDULED")

    def look() -> Task | None:
        found = smoke.send(pages.at(None)).entries
        return next((one for one in found if one.schedule == name and one.id != by_hand), None)

    tick = smoke.until(look, what="tick of the scheduler", since=since, most=MINUTELY_SECONDS)
    took = tick.created_at - smoke.there["put"]
    return f"{words(took)} after the schedule, for {tick.scheduled_at:%H:%M:%SZ}"


def delete_schedule(smoke: Smoke) -> str:
    """Delete it, which takes its tick along."""
    name = smoke.need("schedule", "schedule: put")
    smoke.send(queues.delete_schedule(smoke.other, name))
    expect(smoke.wire.last.status, 204, "the status")
    smoke.refused(NotFound, queues.get_schedule(smoke.other, name))
    return "gone"


def let_lapse(smoke: Smoke) -> str:
    """Lease a task for a second, by the call that asks several queues, and forget it."""
    id = smoke.id("lapses")
    made = smoke.send(tasks.enqueue_task(smoke.other, NewTask(payload=EXACT, id=id)))
    expect(made.outcome, "CREATED", "the outcome")
    call = work.dequeue(
        queues=[smoke.name, smoke.other],
        order="due",
        wait_seconds=2,
        worker=smoke.name,
        keepalive_timeout_in_seconds=1,
    )

    [leased, *others] = smoke.indexed(lambda: smoke.send(call).tasks or None, "task to lease")
    expect([leased.id, *others], [id], "what was leased")
    expect(leased.queue, smoke.other, "its queue")
    smoke.at["lapses"], smoke.there["lapses"] = smoke.now(), leased.lease.expires_at
    return "leased for 1 s, asking both queues, and forgotten"


def reclaimed(smoke: Smoke) -> str:
    """Wait until the reaper has taken it back; nobody dequeues here, who could do it too."""
    since = smoke.since("lapses", "lease: left to lapse")

    def look() -> Task | None:
        task = smoke.send(tasks.get_task(smoke.id("lapses")))
        return task if task.state is State.ENQUEUED else None

    task = smoke.until(look, what="lapsed lease taken back", since=since, most=MINUTELY_SECONDS)
    errors = [(error.kind, error.worker) for error in task.errors]
    expect(errors, [("lease_expired", smoke.name)], "the errors of the task")
    return f"{words(task.errors[0].at - smoke.there['lapses'])} after its end"


def metrics(smoke: Smoke) -> str:
    """Wait until the stream's counts have all that was done in the main queue, and no more."""
    smoke.needs(*_COUNTED)
    since, right = smoke.now(), dict(smoke.events)

    def look() -> str | None:
        seen: Counter[str] = Counter()
        for point in smoke.send(queues.get_metrics(smoke.name)).points:
            seen.update({name: getattr(point, name) or 0 for name in right})
        return _words(right) if seen == right else None

    smoke.until(look, what=f"counts of {_words(right)}", since=since, most=_STREAM_SECONDS)
    return f"{_words(right)}; after {words(smoke.now() - since)}"


def stats(smoke: Smoke) -> str:
    """Wait until the stats say what a count finds."""
    smoke.need("reported", "task: report")
    since = smoke.now()

    def look() -> int | None:
        right = smoke.send(tasks.count_tasks(smoke.name).at(None)).by_state
        counts = smoke.send(queues.get_stats(smoke.name)).counts
        found = (counts.scheduled + counts.ready, counts.inflight, counts.succeeded, counts.dead)
        same = found == tuple(right[state] for state in _STATES)
        return sum(found) if same else None

    count = smoke.until(look, what="stats as counted", since=since, most=_STREAM_SECONDS)
    smoke.refused(NotFound, queues.get_group(smoke.name, "nobody"))  # it has no groups
    return f"{many(count, 'task')}, by state; after {words(smoke.now() - since)}"


def recount(smoke: Smoke) -> str:
    """Recount the queue: the result must be what the recorder has counted of the stream."""
    smoke.needs(*_COUNTED)
    steps = queues.recount_queue(smoke.name)

    def look() -> int | None:
        found = smoke.send(steps.at(None))
        if found.cursor is not None:
            raise Wrong("it does not end with the first step, for so few tasks")
        right = (found.counts, found.cancelled) == (found.was, found.was_cancelled)
        return sum(found.counts.values()) if right else None

    count = smoke.indexed(look, "recount that finds what the recorder has")
    return f"{many(count, 'task')}, as the recorder has it"


def _words(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items())
