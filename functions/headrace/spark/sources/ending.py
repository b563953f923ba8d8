"""The end of a committed micro-batch: settle or release the rest of its tasks.

All of this may run again, and in several processes at once: each task is settled by a conditional
write that requires its lease, and a group ends once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.domain.errors import LeaseLost, NotFound
from headrace.domain.ids import was_under
from headrace.domain.lifecycle import Action
from headrace.domain.limits import NAME_RE, pattern_fault
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.shared.leases import find_group
from headrace.spark.sources import QUEUE
from headrace.spark.sources.claims import GroupClaims, Lease, leases_in, settled
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.leasing import (
    ROWS,
    dropped,
    leftovers,
    release,
    shard_deliveries,
)
from headrace.spark.sources.rows import chunks

_LOG: Final = logging.getLogger(__name__)
_COMES_AGAIN: Final = 60.0
"""Seconds until tasks come again that nothing settled: an operator has time to act on the warning,
and a stream whose sink settles nothing does not read the same tasks all the time."""
_SETTLING: Final = 60.0
"""Seconds of the lease under which tasks are settled whose first lease has ended."""
_WORKER: Final = "spark.on_commit"


@dataclass(frozen=True, slots=True)
class OnCommit:
    """The option ``on_commit``: the tasks of a committed batch succeed, or move on."""

    to_queue: str | None = None

    def report(self, task: Lease) -> TaskReport:
        """Return the report about one task."""
        status = ReportStatus.MOVED if self.to_queue else ReportStatus.SUCCEEDED
        return TaskReport(*task, status, to_queue=self.to_queue)


def on_commit(text: str) -> OnCommit | None:
    """Parse succeed, move:QUEUE or none.  Raises ValueError with the limit."""
    word, colon, queue = text.partition(":")
    if word.lower() == "move" and colon:
        fault = pattern_fault(queue, NAME_RE)
        if fault:
            message = f"names a queue that {fault}"
            raise ValueError(message)
        return OnCommit(queue)
    if text.lower() == "succeed":
        return OnCommit()
    if text.lower() == "none":
        return None
    message = f"must be succeed, move:QUEUE or none, not {text!r}"
    raise ValueError(message)


@dataclass(frozen=True, slots=True)
class MicroBatchEnd:
    """Whether a batch's sink is known to settle tasks now, and whether its lease had lapsed."""

    settles: bool
    lapsed: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """How batches of one stream end; *settles* if its sink is known to settle tasks itself.

    *queue* names what the stream reads, for people.
    """

    connection: StoreConnection
    queue: str
    on_commit: OnCommit | None
    settles: bool = False

    def end(self, group_id: str) -> MicroBatchEnd:
        """End a micro-batch that is committed.

        A batch that was read without its lapsed rows settles nothing: their tasks come again in a
        later batch.
        Raises Unavailable when the tables stay away: then it may be called again.
        """
        if self._claims(group_id).is_lapsed():
            return MicroBatchEnd(self.settles, self.forget(group_id))
        settles = self.settles
        if self.on_commit is not None:
            self._settle(self.on_commit, group_id)
        group = find_group(store(self.connection), group_id)
        left = [
            (queue, some)
            for queue in sorted(group.queues if group else ())
            for some in leftovers(self.connection, queue, group_id)
        ]
        seen = [(queue, some.seen) for queue, some in left if some.seen]
        if seen and not settles:
            settles = self.on_commit is not None or self._settled_some(group_id)
        for queue, some in left:
            release(self.connection, queue, some.unseen)
            if settles:
                dropped(self.connection, queue, some.seen)
        if seen and not settles:
            self._postpone(seen)
        return MicroBatchEnd(settles, self.forget(group_id))

    def forget(self, group_id: str) -> bool:
        """Release the tasks that a group still holds, no attempt used, and remove its claim log.

        Return whether its lease had lapsed before.
        """
        lapsed = self.give_back(group_id)
        self._claims(group_id).forget()
        return lapsed

    def give_back(self, group_id: str) -> bool:
        """Release the tasks that a group still holds, no attempt used; its batch may be read again.

        Return whether its lease had lapsed before.
        """
        try:
            opened(self.connection).leases.close(group_id)
        except (LeaseLost, NotFound) as error:
            _LOG.debug("%s: a group of queue %s was over before", QUEUE, self.queue)
            return isinstance(error, LeaseLost)
        return False

    def _claims(self, group_id: str) -> GroupClaims:
        return GroupClaims(store(self.connection), group_id)

    def _settle(self, what: OnCommit, group_id: str) -> None:
        late = 0
        for queue, tasks in self._claimed(group_id):
            results = opened(self.connection).reports.report(
                queue, [what.report(task) for task in tasks]
            )
            refused = {
                task[0]: task[1]
                for task, one in zip(tasks, results, strict=True)
                if one.outcome is not ReportOutcome.OK
                and one.task is not None
                and not settled(one.task, task[1], group_id)
            }
            late += len(refused)
            if refused:
                late -= self._settle_taken_back(what, queue, refused)
        if late:
            _LOG.warning(
                "%s: %s tasks of queue %s had lost their lease before their micro-batch was"
                " settled, and something else has happened to them since: they may come again in"
                " a later one. A longer lease_seconds helps",
                QUEUE,
                f"{late:,}",
                self.queue,
            )

    def _settle_taken_back(self, what: OnCommit, queue: str, leases: Mapping[str, str]) -> int:
        """Settle the tasks of *leases* that have only waited since this lease ended.

        Their rows are in the sink.  They are leased once more, under a new group, and settled
        under that.  Return how many were settled; the others stay as they are.
        """
        uses = opened(self.connection)
        found = store(self.connection).read(leases, payload=False)
        waiting = [task for id_, task in found.items() if _only_waited(task, leases[id_], queue)]
        if not waiting:
            return 0
        group = uses.leases.open(None, keepalive=_SETTLING)
        try:
            taken = shard_deliveries(self.connection).take(
                queue, waiting, worker=_WORKER, lease_id=group.id
            )
            reports = [what.report((task.id, task.lease_id or "")) for task in taken]
            results = uses.reports.report(queue, reports) if reports else []
            return sum(one.outcome is ReportOutcome.OK for one in results)
        finally:
            self.give_back(group.id)

    def _postpone(self, left: Sequence[tuple[str, Sequence[Lease]]]) -> None:
        """Give tasks of queues back that a sink that is not ours has left."""
        number = sum(
            release(self.connection, queue, some, delay=_COMES_AGAIN)
            for queue, tasks in left
            for some in chunks(iter(tasks), ROWS)
        )
        _LOG.warning(
            "%s: nothing settled %s tasks of a micro-batch of queue %s: they come again in %g"
            " seconds, no attempt used. If they are to be done once the micro-batch is committed,"
            " say on_commit=succeed or on_commit=move:QUEUE; else write to the sink %s",
            QUEUE,
            f"{number:,}",
            self.queue,
            _COMES_AGAIN,
            QUEUE,
        )

    def _settled_some(self, group_id: str) -> bool:
        """Whether a task of the batch was settled under its lease: then the sink does that."""
        for queue, tasks in self._claimed(group_id):
            found = store(self.connection).read([id_ for id_, _ in tasks], payload=False)
            for id_, lease in tasks:
                task = found.get(id_)
                if task is None or task.queue != queue or settled(task, lease, group_id):
                    return True
        return False

    def _claimed(self, group_id: str) -> Iterator[tuple[str, Sequence[Lease]]]:
        """Yield what was claimed, page by page, each of one queue."""
        for page in self._claims(group_id).every():
            if page.num_rows:
                yield page.column("queue")[0].as_py(), leases_in(page)


def _only_waited(task: Task, lease: str, queue: str) -> bool:
    """Whether *task* has only waited since *lease* ended."""
    return (
        task.queue == queue
        and task.state is State.ENQUEUED
        and task.last_move == Action.RECLAIM
        and was_under(task, lease)
    )
