"""How busy a queue is: changes of five minutes, and whether more fails than usually does."""

import pytest

from headrace.history.tally import MINUTE, Activity
from headrace.history.throughput import SLOT_MINUTES, Failing, Throughput
from headrace.history.transitions import Event, Happening

NOW = 1_000 * SLOT_MINUTES + 2  # minutes: two into a slot


def activity(*, backlog: int = 0, **events: int) -> Activity:
    made = Activity(backlog=backlog)
    for name, times in events.items():
        for _ in range(times):
            made.add(Happening(Event[name.upper()], "mail", 0))
    return made


def an_hour(failed: int, started: int) -> Throughput:
    """Fifty minutes in which of each five so many of so many failed."""
    throughput = Throughput()
    for slot in range(988, 999):
        throughput.add(slot * SLOT_MINUTES, activity(started=started, failed=failed))
    return throughput


def test_more_fails_than_usual() -> None:
    throughput = an_hour(failed=1, started=20)
    throughput.add(NOW, activity(started=20, failed=10))

    assert throughput.failing(NOW * MINUTE) == Failing(10, 0.5, 0.05)


@pytest.mark.parametrize(
    ("usual", "now"),
    [
        (activity(started=20, failed=3), activity(started=20, failed=8)),  # not three times
        (activity(started=20), activity(started=200, failed=6)),  # three in a hundred
        (activity(started=20), activity(started=4, failed=4)),  # but four
    ],
)
def test_what_is_usual_or_little_is_not_told(usual: Activity, now: Activity) -> None:
    throughput = Throughput()
    for slot in range(988, 999):
        throughput.add(slot * SLOT_MINUTES, usual)
    throughput.add(NOW, now)

    assert throughput.failing(NOW * MINUTE) is None
