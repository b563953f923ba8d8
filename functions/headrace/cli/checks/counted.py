"""Batches: one is made, shown, closed and forgotten; nothing is enqueued into it."""

from headrace.cli.checks.made import OurBatch
from headrace.cli.checks.run import Smoke, expect
from headrace.client.calls import batches
from headrace.domain.errors import BatchFinished


def create(smoke: Smoke) -> str:
    """Make an open batch, twice under one id."""
    batch = smoke.made.begin(OurBatch(smoke.name))
    made = smoke.send(batches.create_batch(id=smoke.name))
    batch.sure = True
    expect((smoke.wire.last.status, made.id, made.total), (201, smoke.name, None), "the batch")
    smoke.send(batches.create_batch(id=smoke.name))
    expect(smoke.wire.last.status, 200, "the status of the second time")
    smoke.kept["batch"] = smoke.name
    return "open"


def show(smoke: Smoke) -> str:
    """Show it, by itself and in the list, and that it has no members."""
    name = smoke.need("batch", "batch: make")
    shown = smoke.send(batches.get_batch(name))
    listed = smoke.wire.each(batches.list_batches(prefix=name))
    expect([one.id for one in listed], [shown.id], "the list")
    expect(smoke.send(batches.batch_results(name).at(None)).results, [], "the results")
    expect(smoke.send(batches.batch_steps(name)).steps, [], "the steps")
    return "no members"


def close(smoke: Smoke) -> str:
    """Close it: of nothing, so that it has ended, and cannot be closed otherwise."""
    name = smoke.need("batch", "batch: make")
    closed = smoke.send(batches.close_batch(name, 0))
    expect((closed.total, closed.finished_at is None), (0, False), "the batch")
    smoke.refused(BatchFinished, batches.close_batch(name, 1))
    return "ended"


def cancel(smoke: Smoke) -> str:
    """Cancel it, though it has ended: one step, for in the table there may be many tasks."""
    name = smoke.need("batch", "batch: make")
    found = smoke.send(batches.cancel_batch(name).at(None))
    expect(found.cancelled, 0, "the cancelled members")
    return "nothing to cancel"


def recount(smoke: Smoke) -> str:
    """Begin to count it anew: one step, for in the table there may be many tasks of others."""
    name = smoke.need("batch", "batch: make")
    found = smoke.send(batches.recount_batch(name).at(None))
    expect((found.succeeded, found.dead, found.refusal), (0, 0, None), "the members")
    return "no members"


def delete(smoke: Smoke) -> str:
    """Forget it."""
    name = smoke.need("batch", "batch: make")
    smoke.send(batches.delete_batch(name))
    for thing in smoke.made.things.copy():
        if isinstance(thing, OurBatch):
            smoke.made.gone(thing)
    expect(list(smoke.wire.each(batches.list_batches(prefix=name))), [], "the list")
    return "gone"
