"""What operators do: queues, group leases, keys, workers and the audit."""

from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.cli.checks.made import OurKey, OurQueue
from headrace.cli.checks.run import Smoke, expect, words
from headrace.cli.checks.wire import Wrong
from headrace.cli.output import many
from headrace.client.calls import queues, service, tasks, work
from headrace.client.sending import NewTask
from headrace.domain.errors import (
    Conflict,
    Forbidden,
    LeaseLost,
    NotFound,
    QueueExists,
    Unauthenticated,
    VersionMismatch,
)
from headrace.domain.task import State
from headrace.wire.service import AuditEntry, WorkerSeen
from headrace.wire.tasks import Task

_REVOKED_SECONDS: Final = 75.0  # 60 behind an authorizer that keeps what it has seen

# ----------------------------------------------------------------------------------- group leases
SETTINGS: Final[dict[str, Any]] = {
    "description": "a smoke test; may be deleted",
    "retry_strategy": {"kind": "fixed", "max_retries": 2, "base_seconds": 0, "jitter": 0},
    "expires_in_seconds": 86_400,
    "priority": {"aging_in_seconds": 300},
}


def open_lease(smoke: Smoke) -> str:
    """Open a group lease, and lease the restarted task under it."""
    lease = smoke.send(work.open_lease(smoke.name))
    expect(smoke.wire.last.status, 201, "the status")
    smoke.kept["lease"] = lease.id
    again = smoke.need("restarted", "tasks: restart")

    found = smoke.indexed(
        lambda: (
            smoke.send(work.dequeue(smoke.name, lease_id=lease.id, wait_seconds=2)).tasks or None
        ),
        "task to lease",
    )
    expect([task.id for task in found], [again], "what was leased")
    smoke.events["started"] += 1
    smoke.kept["grouped"] = again
    return "open, with a task under it"


def extend_lease(smoke: Smoke) -> str:
    """Extend it."""
    id = smoke.need("lease", "lease: open")
    expect(smoke.send(work.extend_lease(id)).id, id, "the lease")
    return "extended"


def close_lease(smoke: Smoke) -> str:
    """Close it: its task is given back, and it cannot be extended any more."""
    id = smoke.need("lease", "lease: open")
    smoke.send(work.close_lease(id))
    expect(smoke.wire.last.status, 204, "the status")
    smoke.refused(LeaseLost, work.extend_lease(id))
    grouped = smoke.kept.get("grouped")
    if grouped is None:
        return "closed, with nothing under it"

    def look() -> Task | None:
        task = smoke.send(tasks.get_task(grouped))
        if task.state is State.ENQUEUED:
            return task
        smoke.send(work.close_lease(id))  # of what the index did not show yet
        return None

    expect(smoke.indexed(look, "task given back").attempts, 0, "its attempts")
    return "closed, and its task given back"


# ------------------------------------------------------------------------------------------- keys


def create_key(smoke: Smoke) -> str:
    """Make a key that may look at the main queue, and at nothing else."""
    thing = smoke.made.begin(OurKey(smoke.name))
    made = smoke.send(service.create_key(smoke.name, "viewer", [smoke.name]))
    thing.id, thing.sure = made.id, True
    expect(smoke.wire.last.status, 201, "the status")
    smoke.kept["key"], smoke.kept["secret"] = made.id, made.secret
    return f"a viewer of {smoke.name}"


def list_keys(smoke: Smoke) -> str:
    """Find it among the keys, and by its id, without its secret."""
    id, secret = smoke.need("key", "key: make"), smoke.need("secret", "key: make")
    found = any(key.id == id for key in smoke.wire.each(service.list_keys()))
    if secret.encode() in smoke.wire.last.body:
        raise Wrong("the list shows its secret")
    expect(found, right=True, what="whether the list has it")
    expect(smoke.send(service.get_key(id)).schedules, [], "its schedules")
    if secret.encode() in smoke.wire.last.body:
        raise Wrong("the key shows its secret")
    return "there, without its secret"


def forbidden(smoke: Smoke) -> str:
    """Use it where it may be used, and where not: another queue, another role's call."""
    secret = smoke.need("secret", "key: make")
    smoke.send(queues.get_queue(smoke.name), key=secret)
    smoke.refused(Forbidden, queues.get_queue(smoke.other), key=secret)
    smoke.refused(Forbidden, tasks.enqueue_task(smoke.name, NewTask()), key=secret)
    return "403 for another queue, and for what its role may not do"


def rotate_key(smoke: Smoke) -> str:
    """Give it another secret, which works at once."""
    made = smoke.send(service.rotate_key(smoke.need("key", "key: make")))
    before, smoke.kept["secret"] = smoke.kept["secret"], made.secret
    expect(made.secret == before, right=False, what="whether the secret is the one of before")
    smoke.send(queues.get_queue(smoke.name), key=made.secret)
    return "another secret, which works"


def revoke_key(smoke: Smoke) -> str:
    """Revoke it."""
    id = smoke.need("key", "key: make")
    smoke.send(service.delete_key(id))
    expect(smoke.wire.last.status, 204, "the status")
    smoke.at["revoked"] = smoke.now()
    for thing in [one for one in smoke.made.things if isinstance(one, OurKey)]:
        smoke.made.gone(thing)
    return "revoked"


def revoked(smoke: Smoke) -> str:
    """Wait until the revoked key is refused."""
    secret, since = smoke.need("secret", "key: make"), smoke.since("revoked", "key: revoke")

    def look() -> bool | None:
        seen = smoke.wire.ask("GET", f"/v1/queues/{smoke.name}", key=secret)
        return seen.status == Unauthenticated.status or None

    smoke.until(look, what="refusal of the revoked key", since=since, most=_REVOKED_SECONDS)
    smoke.problem(Unauthenticated)
    return f"401, {words(smoke.now() - since)} after it was revoked"


# ---------------------------------------------------------------------------------------- workers


def _sign_of_life(smoke: Smoke) -> str | None:
    started = smoke.at.setdefault("worker", smoke.now())
    return smoke.send(
        work.put_worker(
            smoke.name,
            queues=[smoke.name],
            concurrency=1,
            running=[],
            version=__version__,
            started_at=started,
        )
    )


def put_worker(smoke: Smoke) -> str:
    """Send a worker heartbeat."""
    expect(_sign_of_life(smoke), None, "the command")
    smoke.kept["worker"] = smoke.name
    return "nothing is asked of it"


def list_workers(smoke: Smoke) -> str:
    """Find it among the workers."""
    name = smoke.need("worker", "worker: sign of life")

    def look() -> WorkerSeen | None:
        every = smoke.wire.each(work.list_workers())
        return next((one for one in every if one.name == name), None)

    expect(smoke.indexed(look, "worker of ours in the list").queues, [smoke.name], "its queues")
    return "there"


def quiet_worker(smoke: Smoke) -> str:
    """Ask it to take nothing more, as it hears at its next heartbeat."""
    smoke.send(work.quiet_worker(smoke.need("worker", "worker: sign of life")))
    expect(_sign_of_life(smoke), "quiet", "the command")
    return "hears quiet"


def stop_worker(smoke: Smoke) -> str:
    """Ask it to end."""
    smoke.send(work.stop_worker(smoke.need("worker", "worker: sign of life")))
    expect(_sign_of_life(smoke), "stop", "the command")
    return "hears stop"


# ------------------------------------------------------------------------------------------ audit


def audit(smoke: Smoke) -> str:
    """Find what this test did to the main queue."""

    def look() -> list[AuditEntry] | None:
        found = smoke.send(service.list_audit(queue=smoke.name).at(None)).entries
        return found if any(one.action == "create_queue" for one in found) else None

    found = smoke.indexed(look, "entry of the queue's creation")
    expect({entry.queue for entry in found}, {smoke.name}, "the queues of the entries")
    return f"{many(len(found), 'change')} of the queue"


def create_queue(smoke: Smoke) -> str:
    """Make both queues."""
    for name in (smoke.name, smoke.other):
        thing = smoke.made.begin(OurQueue(name))
        made = smoke.send(queues.create_queue(name, **SETTINGS))
        expect(smoke.wire.last.status, 201, "the status")
        thing.sure = True
        expect((made.name, made.description), (name, SETTINGS["description"]), "the queue")
        expect(made.retry_strategy.max_retries, 2, "max_retries")
    return f"{smoke.name} and {smoke.other}"


def name_taken(smoke: Smoke) -> str:
    """Make a queue again."""
    smoke.refused(QueueExists, queues.create_queue(smoke.name))
    return "409 queue_exists"


def show_queue(smoke: Smoke) -> str:
    """Show a queue with its stats and schedules."""
    found = smoke.send(queues.get_queue(smoke.name))
    expect(found.name, smoke.name, "the name")
    if found.stats is None or found.schedules is None:
        raise Wrong("stats or schedules are missing")
    return f"version {found.version}, with stats and schedules"


def list_queues(smoke: Smoke) -> str:
    """List queues by the beginning of their name."""
    page = smoke.send(queues.list_queues(smoke.name).at(None))
    expect([queue.name for queue in page.entries], [smoke.name, smoke.other], "the list")
    return "both"


def replace_queue(smoke: Smoke) -> str:
    """Send back what is shown, with another description."""
    shown = msgspec.to_builtins(smoke.send(queues.get_queue(smoke.other)))
    changed = smoke.send(queues.replace_queue({**shown, "description": "changed"}))
    expect((changed.description, changed.version), ("changed", shown["version"] + 1), "the queue")
    return f"version {changed.version}"


def outdated_queue(smoke: Smoke) -> str:
    """Replace a version that is not the present one."""
    smoke.refused(
        VersionMismatch, queues.replace_queue({**SETTINGS, "name": smoke.other, "version": 999})
    )
    return "409 version_mismatch"


def signing_secret(smoke: Smoke) -> str:
    """Rotate what signs the requests to a target; the secret before still signs."""
    before = smoke.send(queues.get_signing_secret(smoke.other))
    after = smoke.send(queues.rotate_signing_secret(smoke.other))
    if after.previous != before.secret or after.secret == before.secret:
        raise Wrong("a rotation makes another secret and keeps the one before for a day")
    return "rotated"


def reindex_queue(smoke: Smoke) -> str:
    """Ask for an index that the queue has none of."""
    smoke.refused(Conflict, queues.reindex_queue(smoke.name))
    return "409 conflict"


def pause_queue(smoke: Smoke) -> str:
    """Stop deliveries of the second queue, from which nothing is dequeued any more."""
    paused = smoke.send(queues.pause_queue(smoke.other, 60))
    expect(paused.dequeuing_settings.dequeuing_paused, right=True, what="dequeuing_paused")
    return "paused"


def resume_queue(smoke: Smoke) -> str:
    """Let deliveries go on."""
    resumed = smoke.send(queues.resume_queue(smoke.other))
    expect(resumed.dequeuing_settings.dequeuing_paused, right=False, what="dequeuing_paused")
    return "delivers again"


def purge_queue(smoke: Smoke) -> str:
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


def delete_queue(smoke: Smoke) -> str:
    """Delete both queues."""
    later = False
    for thing in [one for one in smoke.made.things if type(one) is OurQueue]:
        later |= not smoke.send(queues.delete_queue(thing.name))
        smoke.made.gone(thing)
        smoke.refused(NotFound, queues.get_queue(thing.name))
    return "going, in the background" if later else "gone"
