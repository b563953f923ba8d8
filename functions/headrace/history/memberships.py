"""What a write of a task means to the batches that count it."""

from collections.abc import Iterator
from typing import Final

from headrace.domain.batch import HASHES, BatchDelta, hash_of
from headrace.domain.lifecycle import Action
from headrace.domain.task import Membership, State
from headrace.domain.write import TaskView, TaskWrite

_LIVE: Final = "live"
_STANDING: Final = {State.SUCCEEDED: "succeeded", State.DEAD: "dead"}


def batch_deltas(write: TaskWrite) -> Iterator[tuple[str, BatchDelta]]:
    """Yield for each batch of the task its id, and by how much *write* changes its numbers.

    A member that is removed after its end stays counted as it ended; only one that is removed
    before is a deleted one.
    """
    old, new = write.before, write.after
    task = new or old
    if task is None or not (task.memberships or (old is not None and old.memberships)):
        return
    before = {} if old is None else {one.batch: one for one in old.memberships}
    after = {} if new is None else {one.batch: one for one in new.memberships}
    for batch in before | after:
        delta = _delta(write, before.get(batch), after.get(batch))
        if delta is not None:
            yield batch, delta


def _delta(
    write: TaskWrite, before: Membership | None, after: Membership | None
) -> BatchDelta | None:
    was = _standing(write.before) if before is not None else None
    now = _standing(write.after) if after is not None else None
    if write.after is not None and write.after.last_move == Action.UNDELETE:
        # What had ended stayed counted; the others wait again.
        return BatchDelta(live=1, deleted=-1, moves=1) if now == _LIVE else None
    spawned = 0
    if after is not None:
        spawned = (after.spawned - (before.spawned if before is not None else 0)) % HASHES
    ended_before = now is None and was != _LIVE
    if ended_before or (was == now and not spawned):
        return None
    moved = was != now and (now != _LIVE or was is not None)
    delta = BatchDelta(owed=spawned, moves=int(moved or spawned > 0))
    if was is not None:
        setattr(delta, was, getattr(delta, was) - 1)
    name = now or "deleted"
    setattr(delta, name, getattr(delta, name) + 1)
    if was is None and after is not None and write.after is not None:
        _add_birth(delta, write.after, after)
    task = write.after or write.before
    if task is not None and was != now and now == "dead":
        delta.deaths = 1
        delta.died.append(task.id)
    elif task is not None and was != now and was == "dead":
        delta.revived.append(task.id)
    return delta


def _add_birth(delta: BatchDelta, task: TaskView, member: Membership) -> None:
    delta.created = 1
    spot = task.spot or task.ended
    delta.born, delta.queues = [task.id], [spot[0]] if spot else []
    if member.inherited:
        delta.owed = (delta.owed - hash_of(task.id)) % HASHES
    else:
        delta.direct = 1


def _standing(task: TaskView | None) -> str | None:
    """Return the number that counts a task as it stands; one that is gone, as it has ended.

    None is none: of one that was deleted, be it that an undo could bring it back.
    """
    spot = None if task is None else task.spot or task.ended
    if spot is None:
        return None
    return _STANDING.get(spot[1], _LIVE)
