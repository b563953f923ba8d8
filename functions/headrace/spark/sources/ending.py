"""How a batch of a stream ends that is committed: what is left of it is settled, or goes back.

Any of this may be done again, and from several processes at once: every task is settled by a
conditional write that asks for its lease, and a group ends once.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.lease import LeaseGroup
from headrace.domain.limits import NAME_RE, pattern_fault
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.spark.sources import QUEUE
from headrace.spark.sources.claims import GroupClaims, Lease, leases_in, settled
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.leasing import ROWS, dropped, leftovers, release
from headrace.spark.sources.rows import chunks

_LOG: Final = logging.getLogger(__name__)
_COMES_AGAIN: Final = 60.0
"""Seconds until tasks come again that nothing settled: whoever reads the warning has time to act,
and a stream that settles nothing does not read the same tasks all the time."""


@dataclass(frozen=True, slots=True)
class OnCommit:
    """What becomes of the tasks of a batch that is committed: they succeed, or move on."""

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
        """End a batch that is committed.

        Raises Unavailable when the tables stay away: then it may be called again.
        """
        settles = self.settles
        if self.on_commit is not None:
            self._settle(self.on_commit, group_id)
        group = store(self.connection).group(group_id)
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
        """Give back what a group holds still, no attempt used, and forget what it had claimed.

        Return whether its lease had lapsed by then.
        """
        found: list[LeaseGroup] = []
        try:
            opened(self.connection).leases.close(group_id, check=found.append)
        except Unavailable:
            raise
        except HeadraceError:
            _LOG.debug("%s: a group of queue %s was over before", QUEUE, self.queue)
        GroupClaims(store(self.connection), group_id).forget()
        now = opened(self.connection).now()
        return any(group.has_lapsed(now) for group in found)

    def _settle(self, what: OnCommit, group_id: str) -> None:
        late = 0
        for queue, tasks in self._claimed(group_id):
            results = opened(self.connection).reports.report(
                queue, [what.report(task) for task in tasks]
            )
            late += sum(
                one.outcome is not ReportOutcome.OK
                and one.task is not None
                and not settled(one.task, lease, group_id)
                for (_, lease), one in zip(tasks, results, strict=True)
            )
        if late:
            _LOG.warning(
                "%s: %s tasks of queue %s had lost their lease before their micro-batch was"
                " committed, so they come again in a later one: a longer lease_seconds helps",
                QUEUE,
                f"{late:,}",
                self.queue,
            )

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
        for page in GroupClaims(store(self.connection), group_id).every():
            if page.num_rows:
                yield page.column("queue")[0].as_py(), leases_in(page)
