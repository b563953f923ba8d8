"""When an alert begins and ends."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from headrace.domain.alerts import BEGAN, ENDED, AlertState, Measured, next_alerts
from headrace.domain.queue_settings import AlertSettings

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
