"""What needs attention, the worst first: which queues are in trouble, of what, and since when.

Pure: what is known of each queue is an argument.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Final

from headrace.domain.queue import Queue
from headrace.domain.task import Status
from headrace.history.listening import OnDuty
from headrace.history.stats import Glance

from .. import formatting
from ..parts import AlertNote

AMBER: Final = 60.0  # seconds that a task may wait to be taken
RED: Final = 600.0
_MINUS: Final = "\u2212"


class Rank(IntEnum):
    """The kinds of incidents, the worst first; up to LATE they are urgent."""

    STALLED = 0
    FAILING = 1
    SILENT = 2
    LATE = 3
    ALERT = 4
    PAUSED = 5
    BACKING_OFF = 6
    SLOW = 7

    @property
    def key(self) -> str:
        """The kind in addresses and records."""
        return self.name.lower()

    @property
    def word(self) -> str:
        """The kind for people."""
        return "no workers" if self is Rank.SILENT else self.key.replace("_", " ")


@dataclass(frozen=True, slots=True)
class TroubleReason:
    """One incident of a queue: its kind, a line about it, and since when if that is known.

    ``until`` is when it ends by itself, ``why`` the reason of its actor, and ``snooze`` the address
    where it can be snoozed.
    """

    rank: Rank
    text: str
    since: datetime | None = None
    until: datetime | None = None
    why: str = ""
    snooze: str = ""

    @property
    def bad(self) -> bool:
        """Whether it is urgent."""
        return self.rank <= Rank.LATE


@dataclass(frozen=True, slots=True)
class Trouble:
    """A queue that needs attention, and its incidents, the worst first."""

    name: str
    url: str
    reasons: tuple[TroubleReason, ...]

    @property
    def bad(self) -> bool:
        """Whether any of it is urgent."""
        return self.reasons[0].bad

    def of(self, reasons: Iterable[TroubleReason]) -> "Trouble":
        """Return it with other *reasons*."""
        return replace(self, reasons=tuple(reasons))

    def explained(self, paused: str, since: datetime, why: str) -> "Trouble":
        """Return it with who paused the queue, when, and why."""
        return self.of(
            replace(reason, text=paused, since=since, why=why)
            if reason.rank is Rank.PAUSED
            else reason
            for reason in self.reasons
        )


def worst_first(troubles: Iterable[tuple[Trouble, int]]) -> list[Trouble]:
    """Return *troubles*, each with how many tasks of it are ready, the worst first."""
    ranked = sorted(troubles, key=lambda one: (one[0].reasons[0].rank, -one[1], one[0].name))
    return [trouble for trouble, _ in ranked]


def reasons_of(
    queue: Queue,
    glance: Glance,
    on_duty: OnDuty,
    alerts: Sequence[AlertNote],
    now: datetime,
    backing_off: str,
) -> tuple[TroubleReason, ...]:
    """Return the incidents of *queue*, the worst first; *backing_off* is why its target does."""
    ready, oldest = glance.counts[Status.READY], glance.age_of_oldest_ready or 0.0
    waiting = f"{formatting.number(ready)} ready"
    found = []
    if queue.is_paused(now):
        found.append(TroubleReason(Rank.PAUSED, waiting, until=queue.resume_at))
    elif ready and on_duty.silent(queue, glance.rates.dequeued, now):
        found.append(TroubleReason(Rank.SILENT, waiting))
    elif ready and not glance.rates.dequeued and oldest > AMBER:
        why = _why_stalled(queue, glance, on_duty)
        text = f"{waiting}, and nothing was started in the last minute{why}"
        found.append(TroubleReason(Rank.STALLED, text))
    elif ready and oldest > AMBER:
        long = f"oldest ready for {formatting.age(oldest)}, {waiting}"
        workers = on_duty.of(queue.name, glance.rates.dequeued)
        busy = f"; {workers.busy_words(ready - 1)} for all" if workers.all_busy else ""
        text = f"{long}{_delta(glance.grown)}{busy}"
        found.append(TroubleReason(Rank.LATE if oldest > RED else Rank.SLOW, text))
    if backing_off:
        found.append(TroubleReason(Rank.BACKING_OFF, f"{waiting}, {backing_off}"))
    if (failing := glance.failing) is not None:
        usual = "" if failing.usual is None else f", {_percent(failing.usual)} usually"
        failed = formatting.number(failing.failed)
        text = f"{_percent(failing.share)} of attempts fail{usual}: {failed} failed in 10 min"
        found.append(TroubleReason(Rank.FAILING, text))
    found += [
        TroubleReason(Rank.ALERT, one.text, since=one.since) for one in alerts if not one.recovers
    ]
    return tuple(sorted(found, key=lambda reason: reason.rank))


def delta(step: int) -> str:
    """Return by how much a number has changed, with its sign; empty for not at all."""
    sign = "+" if step > 0 else _MINUS
    return f"{sign}{formatting.number(abs(step))}" if step else ""


def _delta(step: int) -> str:
    return f", {delta(step)} in 5 min" if step else ""


def _why_stalled(queue: Queue, glance: Glance, on_duty: OnDuty) -> str:
    most = queue.settings.dequeuing_settings.max_inflight_tasks
    if most and glance.counts[Status.INFLIGHT] >= most:
        return f": its limit of {formatting.number(most)} in flight is reached"
    if queue.settings.target is not None:
        return ", though they are pushed to a target"
    workers = on_duty.of(queue.name)
    if workers.all_busy:
        return f": {workers.busy_words()}"
    if workers.count:
        return f", though it has {formatting.count_of(workers.count, 'worker')}"
    return ""


def _percent(share: float) -> str:
    return f"{formatting.number(round(share * 100, 1 if share < 0.1 else None))} %"  # noqa: PLR2004
