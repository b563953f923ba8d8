"""Tasks: enqueued, found, leased, reported on, and acted on by ids and by filter.

Six go into the main queue.  Four of them are leased, and each ends in another way.
"""

from hashlib import sha256
from typing import Final

from headrace.cli.checks.run import EXACT, Smoke, expect
from headrace.cli.checks.wire import Wrong
from headrace.cli.output import many
from headrace.client.calls import tasks, work
from headrace.client.payloads import upload_payload
from headrace.client.sending import Failure, NewTask, Report, SpawnedTask
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.domain.ids import new_idempotency_key
from headrace.wire.tasks import LeasedTask, Reported, Task

DUE: Final = ("exact", "fails", "moves", "back")
LATER: Final = "later"
_RANKS: Final = {"exact": ',"priority":"high"', "back": ',"priority":"low"'}
_ONE: Final = sha256(b"1").hexdigest()
_DAY: Final = 86_400.0
_LARGE: Final = 5
_LARGE_PAYLOAD: Final = '"' + '\\"ñ水\\\\' * 23_000 + '"'  # 207,002 bytes
_LEAST_BYTES: Final = 1_000_000


def _entry(smoke: Smoke, what: str, payload: str, more: str = "") -> bytes:
    """Return an entry of an enqueue whose payload is this very text."""
    return f'{{"id":"{smoke.id(what)}","payload":{payload}{more}}}'.encode()


def _entries(smoke: Smoke) -> list[bytes]:
    later = f',"delay_in_seconds":3600,"dedupe_key":"{smoke.name}","tags":{{"smoke":"later"}}'
    due = [_entry(smoke, what, EXACT, _RANKS.get(what, "")) for what in DUE]
    return [*due, _entry(smoke, LATER, '{"later":true}', later)]


def enqueue(smoke: Smoke) -> str:
    """Enqueue five tasks, one of them for later."""
    made = smoke.send(tasks.enqueue_entries(smoke.name, _entries(smoke)))
    expect([one.outcome for one in made], ["CREATED"] * 5, "the outcomes")
    expect([one.id for one in made], [smoke.id(what) for what in (*DUE, LATER)], "the ids")
    smoke.events["enqueued"] += 5
    smoke.kept["tasks"] = smoke.name
    return "5 CREATED"


def again(smoke: Smoke) -> str:
    """Enqueue the same once more."""
    smoke.need("tasks", "task: enqueue")
    made = smoke.send(tasks.enqueue_entries(smoke.name, _entries(smoke)))
    expect([one.outcome for one in made], ["EXISTING"] * 5, "the outcomes")
    return "5 EXISTING"


def duplicate(smoke: Smoke) -> str:
    """Enqueue another task with a dedupe key that is held."""
    smoke.need("tasks", "task: enqueue")
    made = smoke.send(tasks.enqueue_task(smoke.name, NewTask(dedupe_key=smoke.name)))
    expect((made.outcome, made.id), ("DUPLICATE", smoke.id(LATER)), "the outcome")
    return "DUPLICATE, with the holder's id"


def show(smoke: Smoke) -> str:
    """Show a task whose payload must come back byte for byte."""
    smoke.need("tasks", "task: enqueue")
    task = smoke.send(tasks.get_task(smoke.id("exact")))
    _exactly(task.payload_json, EXACT)
    expect((task.queue, task.status), (smoke.name, "READY"), "the task")
    expect(task.priority, "high", "the priority")
    return f"{len(EXACT.encode())} bytes as they were sent, not ASCII, with large numbers; high"


def explain(smoke: Smoke) -> str:
    """Ask why a task for later is not running."""
    smoke.need("tasks", "task: enqueue")
    reasons = smoke.send(tasks.explain_task(smoke.id(LATER)))
    expect([one.code for one in reasons], ["scheduled"], "the reasons")
    return "scheduled"


def listed(smoke: Smoke) -> str:
    """List tasks by state and tag."""
    smoke.need("tasks", "task: enqueue")
    pages = tasks.list_tasks(smoke.name, state="SCHEDULED", tags={"smoke": "later"})

    found = smoke.indexed(lambda: smoke.send(pages.at(None)).entries or None, "task in the list")
    expect([task.id for task in found], [smoke.id(LATER)], "the list")
    return "the one with that tag"


def count(smoke: Smoke) -> str:
    """Count tasks by state."""
    smoke.need("tasks", "task: enqueue")
    right = len(DUE) + 1

    def look() -> bool | None:
        counted = smoke.send(tasks.count_tasks(smoke.name, state="pending").at(None))
        return counted.count == right or None

    smoke.indexed(look, f"count of {right}")
    return f"{right} pending"


# ------------------------------------------------------------------------------ a worker's calls


def dequeue(smoke: Smoke) -> str:
    """Lease the four tasks that are due, and get the same ones for the same call again."""
    smoke.need("tasks", "task: enqueue")
    ids = {smoke.id(what) for what in DUE}

    def look() -> bool | None:
        left = len(ids - smoke.held.keys())
        call = work.dequeue(smoke.name, batch_size=left, wait_seconds=2, worker=smoke.name)
        key = new_idempotency_key()
        found = smoke.send(call, repeat=key).tasks
        if found:
            _same_again(smoke, smoke.send(call, repeat=key).tasks, found)
        smoke.held |= {task.id: task for task in found}
        smoke.events["started"] += len(found)
        return smoke.held.keys() >= ids or None

    smoke.indexed(look, "four tasks to lease")
    expect(smoke.held.keys(), ids, "the set of leased tasks")
    for task in smoke.held.values():
        expect((task.attempts, task.worker), (1, smoke.name), f"attempt and worker of {task.id}")
        _exactly(task.payload_json, EXACT)
    ranks = [smoke.held[smoke.id(what)].priority for what in DUE]
    expect(ranks, ["high", "normal", "normal", "low"], "the priorities")
    smoke.kept["leased"] = smoke.name
    return "4 leased, of three priorities; the call repeated gives the same leases"


def _same_again(smoke: Smoke, repeated: list[LeasedTask], first: list[LeasedTask]) -> None:
    leases = [{task.id: task.lease.id for task in tasks} for tasks in (repeated, first)]
    expect(leases[0], leases[1], "what the repeated dequeue gives")
    expect(smoke.wire.last.headers.get("Idempotent-Replay"), "true", "Idempotent-Replay")


def heartbeat(smoke: Smoke) -> str:
    """Extend a lease, and be refused with one that is another task's."""
    held, other = smoke.holding("exact"), smoke.holding("fails")
    beat, stale = smoke.send(
        work.report_batch(
            smoke.name,
            [
                Report.on(held, "INFLIGHT", progress={"step": 1}),
                Report(task_id=other.id, lease_id=held.lease.id, status="SUCCEEDED"),
            ],
        )
    )
    expect((beat.outcome, stale.outcome), ("OK", "STALE_LEASE"), "the outcomes")
    if beat.lease is None or beat.lease.expires_at <= held.lease.expires_at:
        raise Wrong("the lease does not end later than before")
    return "OK; STALE_LEASE for one that is not ours"


def report(smoke: Smoke) -> str:
    """Report on four tasks, each in another way."""
    reports = _reports(smoke)
    results = smoke.send(work.report_batch(smoke.name, reports))
    expect(_outcomes(results), _RIGHT, "the outcomes")
    expect([child.outcome for child in results[0].spawned], ["CREATED"], "what was spawned")
    smoke.events += {"succeeded": 1, "failed": 1, "dead": 1, "enqueued": 1}
    smoke.kept["reported"] = smoke.name
    return "SUCCEEDED with a task spawned, DEAD, MOVED, given back"


_RIGHT: Final = [("OK", "SUCCEEDED"), ("OK", "DEAD"), ("OK", "ENQUEUED"), ("OK", "ENQUEUED")]


def reported_again(smoke: Smoke) -> str:
    """Send the same reports once more."""
    smoke.need("reported", "task: report")
    results = smoke.send(work.report_batch(smoke.name, _reports(smoke)))
    expect([one.outcome for one in results], ["OK"] * len(DUE), "the outcomes")
    return "OK, and nothing done twice"


def _reports(smoke: Smoke) -> list[Report]:
    held = [smoke.holding(what) for what in DUE]
    child = SpawnedTask(queue=smoke.name, id=smoke.id("child"), delay_in_seconds=3600)
    return [
        Report.on(held[0], "SUCCEEDED", result={"rows": 12}, spawn=[child]),
        Report.on(held[1], "FAILED", retryable=False, error=Failure("Smoke", "this is a test")),
        Report.on(held[2], "MOVED", to_queue=smoke.other, delay_in_seconds=3600),
        Report.on(held[3], "RELEASED", delay_in_seconds=3600),
    ]


def _outcomes(results: list[Reported]) -> list[tuple[str, str]]:
    return [(one.outcome, str(one.state)) for one in results]


def outcomes(smoke: Smoke) -> str:
    """Show what has become of them."""
    smoke.need("reported", "task: report")
    done, dead, moved, back = (smoke.send(tasks.get_task(smoke.id(what))) for what in DUE)
    expect((done.status, done.result), ("SUCCEEDED", {"rows": 12}), "the one that succeeded")
    expect((dead.status, dead.dead_reason), ("DEAD", "rejected"), "the one that failed")
    expect((moved.queue, len(moved.trail)), (smoke.other, 1), "the one that was moved")
    expect((back.status, back.attempts), ("SCHEDULED", 0), "the one that was given back")
    return "as reported"


# -------------------------------------------------------------------------- an operator's actions


def restart(smoke: Smoke) -> str:
    """Restart the dead task."""
    smoke.need("reported", "task: report")
    _act(smoke, "restart", "fails", "RESTARTED")
    smoke.events["enqueued"] += 1
    smoke.kept["restarted"] = smoke.id("fails")
    return "RESTARTED"


def cancel(smoke: Smoke) -> str:
    """Cancel the task that was given back, in bulk and then by itself, which changes nothing."""
    smoke.need("reported", "task: report")
    _act(smoke, "cancel", "back", "CANCELLED")
    smoke.events["cancelled"] += 1
    again = smoke.send(tasks.cancel_task(smoke.id("back")))
    expect((str(again.state), again.dead_reason), ("DEAD", "cancelled"), "the task")
    return "CANCELLED, once"


def run(smoke: Smoke) -> str:
    """Make a waiting task due."""
    smoke.need("tasks", "task: enqueue")
    return _act(smoke, "run", LATER, "DUE")


def move(smoke: Smoke) -> str:
    """Move it to the second queue."""
    smoke.need("tasks", "task: enqueue")
    return _act(smoke, "move", LATER, "MOVED", to_queue=smoke.other)


def _act(
    smoke: Smoke, action: tasks.ActionName, what: str, outcome: str, *, to_queue: str | None = None
) -> str:
    done = smoke.send(tasks.bulk_by_ids(action, smoke.name, [smoke.id(what)], to_queue=to_queue))
    expect([one.outcome for one in done.results], [outcome], "the outcome")
    expect((done.matched, done.changed), (1, 1), "matched and changed")
    return outcome


def large(smoke: Smoke) -> str:
    """List tasks that make an answer of more than 1 MB, in letters that take two bytes and more."""
    more = f',"delay_in_seconds":{_DAY:.0f},"tags":{{"smoke":"large"}}'
    entries = [_entry(smoke, f"large-{number}", _LARGE_PAYLOAD, more) for number in range(_LARGE)]
    made = smoke.send(tasks.enqueue_entries(smoke.name, entries))
    expect([one.outcome for one in made], ["CREATED"] * _LARGE, "the outcomes")
    smoke.events["enqueued"] += _LARGE
    pages = tasks.list_tasks(smoke.name, tags={"smoke": "large"}, payload=True)

    def look() -> list[Task] | None:
        found = smoke.send(pages.at(None)).entries
        return found if len(found) == _LARGE else None

    for task in smoke.indexed(look, "answer with all five"):
        _exactly(task.payload_json, _LARGE_PAYLOAD)
    size = len(smoke.wire.last.body)
    if size < _LEAST_BYTES:
        raise Wrong(f"the answer has {size:,} bytes only")
    smoke.kept["large"] = smoke.name
    return f"{size:,} bytes, {many(_LARGE, 'payload')} as sent"


def upload(smoke: Smoke) -> str:
    """Ask for an upload, which is granted where payloads are kept outside the table."""
    try:
        granted = smoke.wire.send(upload_payload(smoke.name, size=1, digest=_ONE))
    except InvalidRequest:
        smoke.problem(InvalidRequest)
        return "refused: payloads are not kept outside the table here"
    return f"granted until {granted.expires_at:%H:%M}, and not used"


def delete_many(smoke: Smoke) -> str:
    """Delete by filter: a dry run, then the deed, as often as the index needs to show all."""
    smoke.need("large", "answer of 1 MB")
    where = {"state": "SCHEDULED", "tags": {"smoke": "large"}}
    dry = tasks.bulk_by_filter("delete", smoke.name, where, dry_run=True)
    gone = 0

    def look() -> bool | None:
        would = smoke.send(dry)
        expect(would.changed, 0, "what the dry run changed")
        return would.matched == _LARGE or None

    def deed() -> bool | None:
        nonlocal gone
        gone += smoke.send(tasks.bulk_by_filter("delete", smoke.name, where)).changed
        return gone >= _LARGE or None

    smoke.indexed(look, f"dry run with {_LARGE} tasks")
    smoke.indexed(deed, f"end of {_LARGE} tasks")
    expect(gone, _LARGE, "the number of tasks deleted")
    return f"{many(gone, 'task')} by their tag, after a dry run"


def delete(smoke: Smoke) -> str:
    """Delete one task, bring it back, delete it for good, and find it gone."""
    smoke.need("reported", "task: report")
    kept = smoke.send(tasks.delete_task(smoke.id("child"), undo_in_seconds=60))
    if kept is None:
        raise Wrong("a deletion with undo_in_seconds names no undo")
    back = smoke.send(tasks.undo(kept.id).at(None))
    expect(back.changed, 1, "the number of tasks brought back")
    smoke.send(tasks.delete_task(smoke.id("child")))
    expect(smoke.wire.last.status, 204, "the status")
    try:
        smoke.refused(NotFound, tasks.get_task(smoke.id("child")))
    except Wrong:
        smoke.problem(Forbidden)  # all that a key not for all queues hears of what is not there
    return "gone"


def _exactly(found: object, payload: str) -> None:
    """Raise Wrong unless a payload came back as the text that it was sent as."""
    if bytes(found) != payload.encode():  # type: ignore[call-overload]  # a msgspec.Raw
        raise Wrong(
            f"another payload came back than the one of {len(payload.encode()):,} bytes sent"
        )
