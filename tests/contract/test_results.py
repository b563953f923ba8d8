"""What every store promises about results that cannot be kept: they cost their own report only."""

import pytest

from headrace.domain import limits
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from tests.contract.conftest import World, lease_name

pytestmark = pytest.mark.gate

TOO_LARGE = '"' + "x" * limits.RESULT_BYTES + '"'


@pytest.mark.parametrize("result", [TOO_LARGE, "NaN", "[" * 100_000])
def test_a_report_whose_result_cannot_be_kept_is_invalid_and_the_lease_stays(
    world: World, result: str
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2", "3")
    tasks = world.take(queue, 3)
    reports = [
        TaskReport(task.id, lease_name(task), ReportStatus.SUCCEEDED, result=kept)
        for task, kept in zip(tasks, ["1", result, '{"n": 2}'], strict=True)
    ]

    outcomes = world.use.reports.report(queue, reports)

    assert [of.outcome for of in outcomes] == [
        ReportOutcome.OK,
        ReportOutcome.INVALID,
        ReportOutcome.OK,
    ]
    assert str(outcomes[1].detail).startswith("result must be ")
    assert world.see(tasks[1].id) == tasks[1]
    assert world.say(tasks[1], "SUCCEEDED", result="9" * 5_000).outcome is ReportOutcome.OK
    assert world.see(tasks[1].id).state is State.SUCCEEDED
