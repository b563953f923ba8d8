"""The proof with the table beside it: tasks that were never ended must be there."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.times import micros_of
from headrace.history.changelog import Line
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof_with_table
from headrace.spark.sources import connect
from headrace.spark.sources.connect import StoreConnection
from tests.pipeline.stories import SECOND, START, Story, write


@pytest.mark.slow
def test_a_task_that_is_neither_ended_nor_in_the_table_is_lost(
    lake: LakeFrames, connection: StoreConnection
) -> None:
    uses = connect.opened(connection)
    uses.queues.create("mail", QueueSettings())
    (there,) = uses.tasks.enqueue("mail", [TaskSpec("1")])
    assert there.task is not None
    story = Story()
    story.now = micros_of(there.task.created_at) - 600 * SECOND
    for task in ("ended late", "lost"):
        story.enqueue(task)
    story.now = micros_of(there.task.created_at)
    story.enqueue(str(there.id))
    story.now += 2 * 3600 * SECOND
    story.enqueue("came after the table was read")
    late: list[Line] = [{**story.record("ended late", "delete", None), "sequence": "99"}]
    write(lake.files, story.lines[:-1])
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        write(lake.files, late)  # it was under way

    report = proof_with_table(
        lake,
        connection.options(),
        settle_seconds=7,
        now=lambda: there.task.created_at + timedelta(minutes=2) if there.task else NEVER,
        sleep=sleep,
    )

    assert report.violations == {"lost": 1}
    assert [one.task_id for one in report.examples["lost"]] == ["lost"]
    assert (waited, report.live) == ([7], True)


NEVER = datetime.fromtimestamp(START / SECOND, UTC)
