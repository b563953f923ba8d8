"""What the end of a delivery does to a task, at the borders of its conditions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from headrace.domain import plan, settle
from headrace.domain.alerts import BEGAN, ENDED, AlertState, Measured, next_alerts
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import AlertSettings, QueueSettings
from headrace.domain.settle import ReleaseReason, ReportedLease
from headrace.domain.task import TURN_LANE, State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings, Turn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
LATER = NOW + timedelta(seconds=10)
PLAIN = Queue("mail", QueueSettings(), NOW, NOW)
FAIR = Queue("mail", QueueSettings(groups=GroupSettings(GroupMode.FAIR)), NOW, NOW)
TURN = Turn(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))


def delivered(queue: Queue, *, turn: Turn | None = None, slot: str | None = None) -> Task:
    """Return a task that is in flight since its due time."""
    change = plan.enqueue(
        TaskSpec("{}"), queue, task_id="task-1", due_at=NOW, now=NOW, token=None, turn=turn
    )
    assert change.insert is not None
    place = structs.replace(change.insert.place, state=State.INFLIGHT)
    return structs.replace(change.insert, place=place, slot=slot, lease_id="lse_1")


@pytest.mark.parametrize(
    ("slot", "reason", "due_at"),
    [
        (None, ReleaseReason.UNDELIVERED, NOW),
        ("1", ReleaseReason.UNDELIVERED, NOW + INSTANT),
        (None, ReleaseReason.REPORTED, LATER),
    ],
)
def test_only_a_task_that_was_not_handed_out_keeps_its_place(
    slot: str | None, reason: ReleaseReason, due_at: datetime
) -> None:
    for queue, turn in ((PLAIN, None), (FAIR, TURN)):
        held = delivered(queue, turn=turn, slot=slot)
        put = settle.release(held, queue, now=LATER, reason=reason).put
        keeps_turn = reason is ReleaseReason.UNDELIVERED and turn is not None
        assert put["due_at"] == due_at
        assert put["scheduled_at"] == (TURN.at if keeps_turn else due_at)
        assert (put["place"].lane == TURN_LANE) is keeps_turn


@pytest.mark.parametrize("kept_for", [0, 1])
def test_a_task_that_succeeded_is_kept_if_its_queue_keeps_history(kept_for: int) -> None:
    settings = QueueSettings(history_retention_in_seconds=kept_for)
    queue = Queue("mail", settings, NOW, NOW)
    lease = ReportedLease.of(delivered(queue))
    change = settle.succeed(lease, queue, now=LATER, result=None)
    assert change.gone is (kept_for == 0)
    assert ("payload" in change.clear) is (kept_for == 0)


# -- when an alert begins and ends -----------------------------------------------------------------

START = datetime(2031, 5, 1, 8, tzinfo=UTC)
LIMIT = AlertSettings("ops", oldest_ready_seconds=60)


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        ([60, 60], [BEGAN]),
        ([59, 0], []),
        ([60, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0], [BEGAN]),
        ([60, 0, 0, 0, 0, 0, 0], [BEGAN, ENDED]),
        ([60, 0, 0, 0, 0, 0, 0, 60], [BEGAN, ENDED, BEGAN]),
    ],
)
def test_an_alert_ends_after_five_quiet_minutes(
    minutes: Sequence[float], told: Sequence[str]
) -> None:
    state, kinds = AlertState(START), list[str]()
    for minute, oldest in enumerate(minutes):
        now = START + timedelta(minutes=minute)
        state, events = next_alerts(state, LIMIT, Measured(oldest_ready=oldest), now)
        kinds += [event.kind for event in events]
    assert kinds == told
