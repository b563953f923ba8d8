"""The end of a group: what nobody settled counts an attempt and waits, and then it is closed."""

from typing import Final

from headrace.domain.lease import LeaseName
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport, WorkerError
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.leasing import chunks

DROPPED: Final = WorkerError(
    "Dropped", "nothing settled this task: the transform gave no row of it"
)


def sweep(connection: StoreConnection, queue: str, group_id: str) -> int:
    """Report what *group_id* still holds of *queue* as failed; return how many tasks that were.

    So a task that is dropped time and again is dead in the end, and no drain goes on for ever.
    """
    uses = opened(connection)
    swept = 0
    for shard in range(uses.queues.cached(queue).shards_of(State.INFLIGHT)):
        for tasks in chunks(uses.leases.held(group_id, queue, shard, payload=False)):
            reports = [
                TaskReport(task.id, str(LeaseName.of(task)), ReportStatus.FAILED, error=DROPPED)
                for task in tasks
            ]
            results = uses.reports.report(queue, reports)
            swept += sum(one.outcome is ReportOutcome.OK for one in results)
    return swept
