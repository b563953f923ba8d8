"""Queues: made, shown, listed, replaced, paused, resumed; and in the end deleted."""

from typing import Any, Final

import msgspec

from headrace.cli.checks.made import OurQueue
from headrace.cli.checks.run import Smoke, expect
from headrace.cli.checks.wire import Wrong
from headrace.cli.output import many
from headrace.client.calls import queues, tasks
from headrace.domain.errors import NotFound, QueueExists, VersionMismatch

SETTINGS: Final[dict[str, Any]] = {
    "description": "a smoke test; may be deleted",
    "retry_strategy": {"kind": "fixed", "max_retries": 2, "base_seconds": 0, "jitter": 0},
    "expires_in_seconds": 86_400,
}


def create(smoke: Smoke) -> str:
    """Make both queues."""
    for name in (smoke.name, smoke.other):
        thing = smoke.made.begin(OurQueue(name))
        made = smoke.send(queues.create_queue(name, **SETTINGS))
        expect(smoke.wire.last.status, 201, "the status")
        thing.sure = True
        expect((made.name, made.description), (name, SETTINGS["description"]), "the queue")
        expect(made.retry_strategy.max_retries, 2, "max_retries")
    return f"{smoke.name} and {smoke.other}"


def taken(smoke: Smoke) -> str:
    """Make a queue again."""
    smoke.refused(QueueExists, queues.create_queue(smoke.name))
    return "409 queue_exists"


def show(smoke: Smoke) -> str:
    """Show a queue with its stats and schedules."""
    found = smoke.send(queues.get_queue(smoke.name))
    expect(found.name, smoke.name, "the name")
    if found.stats is None or found.schedules is None:
        raise Wrong("stats or schedules are missing")
    return f"version {found.version}, with stats and schedules"


def listed(smoke: Smoke) -> str:
    """List queues by the beginning of their name."""
    page = smoke.send(queues.list_queues(smoke.name).at(None))
    expect([queue.name for queue in page.entries], [smoke.name, smoke.other], "the list")
    return "both"


def replace(smoke: Smoke) -> str:
    """Send back what is shown, with another description."""
    shown = msgspec.to_builtins(smoke.send(queues.get_queue(smoke.other)))
    changed = smoke.send(queues.replace_queue({**shown, "description": "changed"}))
    expect((changed.description, changed.version), ("changed", shown["version"] + 1), "the queue")
    return f"version {changed.version}"


def outdated(smoke: Smoke) -> str:
    """Replace a version that is not the present one."""
    smoke.refused(
        VersionMismatch, queues.replace_queue({**SETTINGS, "name": smoke.other, "version": 999})
    )
    return "409 version_mismatch"


def pause(smoke: Smoke) -> str:
    """Stop deliveries of the second queue, from which nothing is dequeued any more."""
    paused = smoke.send(queues.pause_queue(smoke.other, 60))
    expect(paused.dequeuing_settings.dequeuing_paused, right=True, what="dequeuing_paused")
    return "paused"


def resume(smoke: Smoke) -> str:
    """Let deliveries go on."""
    resumed = smoke.send(queues.resume_queue(smoke.other))
    expect(resumed.dequeuing_settings.dequeuing_paused, right=False, what="dequeuing_paused")
    return "delivers again"


def purge(smoke: Smoke) -> str:
    """Remove all tasks of the second queue."""
    states = ["ENQUEUED", "INFLIGHT", "SUCCEEDED", "DEAD"]
    purged = smoke.send(queues.purge_queue(smoke.other, states))
    expect(smoke.wire.last.status, 202 if purged.in_background else 200, "the status")
    if purged.in_background:
        return "goes on in the background"

    smoke.indexed(
        lambda: smoke.send(tasks.count_tasks(smoke.other).at(None)).count == 0 or None,
        "empty queue",
    )
    return f"{many(purged.deleted, 'task')} gone"


def delete(smoke: Smoke) -> str:
    """Delete both queues."""
    later = False
    for thing in [one for one in smoke.made.things if type(one) is OurQueue]:
        later |= not smoke.send(queues.delete_queue(thing.name))
        smoke.made.gone(thing)
        smoke.refused(NotFound, queues.get_queue(thing.name))
    return "going, in the background" if later else "gone"
