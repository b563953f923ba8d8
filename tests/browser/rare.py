"""Pages that a healthy, quiet service never shows: served by the console in this process."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, cast

from headrace.domain.errors import Unavailable
from headrace.history.proof import Finding, ProofReport
from tests.browser.fixtures import WIDE
from tests.browser.pictures import hour
from tests.console.conftest import Browser

MANY: Final = 1_234_567_890


class _Away:
    """A store that does not answer."""

    def __getattr__(self, _: str) -> Any:
        message = "the tasks table does not answer; nothing was lost, try again in a minute"
        raise Unavailable(message)


class _Otherwise:
    """Something as it is, but for some of its attributes."""

    def __init__(self, real: Any, **others: Any) -> None:
        self._real = real
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Crowded(_Otherwise):
    """Stats as they are, with over a billion tasks in each state."""

    def of(self, queue: str) -> Any:
        return self._many(self._real.of(queue))

    def overview(self, *given: Any) -> Any:
        seen = self._real.overview(*given)
        return replace(seen, queues={name: self._many(one) for name, one in seen.queues.items()})

    def _many(self, one: Any) -> Any:
        rates = replace(one.rates, enqueued=98_765.4, failed=1_234.5)
        return replace(one, counts=dict.fromkeys(one.counts, MANY), age_of_oldest_ready=4e6,
                       rates=rates)  # fmt: skip


def rare() -> Mapping[str, tuple[Callable[[], Browser], str]]:
    """Return what makes the console that shows it, and the page, by a name for each."""
    return {
        "all-billion": (_crowded, "/console"),
        "queue-billion": (_crowded, "/console/queues/mail"),
        "broken": (_broken, "/console"),
        "away": (_away, "/console/queues/mail"),
        "proof-holds": (lambda: _proved({}), "/console/proof"),
        "proof-findings": (
            lambda: _proved({"broken_chain": 12_345, "double_lease": 1, "lost": 2}),
            "/console/proof",
        ),
    }


@cache
def _crowded() -> Browser:
    console = hour()
    console.use = cast("Any", _Otherwise(console.use, stats=_Crowded(console.use.stats)))
    return console


@cache
def _broken() -> Browser:
    console = hour()
    console.use = cast("Any", _Otherwise(console.use, stats=None))
    return console


@cache
def _away() -> Browser:
    console = hour()
    console.use.queues.store = cast("Any", _Away())
    console.clock.forward(600)  # what was read before is forgotten, the session is not
    return console


def _proved(violations: Mapping[str, int]) -> Browser:
    """Let the lake have a report with *violations*: numbers by kind, of each five are told."""
    console = hour()
    now = console.clock()
    report = ProofReport(
        made_at=now - timedelta(hours=2),
        since=None,
        live=True,
        first=now - timedelta(days=90),
        last=now - timedelta(hours=3),
        tasks=MANY,
        changes=4 * MANY,
        violations=violations,
        examples={kind: _found(now, min(number, 5)) for kind, number in violations.items()},
    )
    proofs = SimpleNamespace(latest=lambda: report)
    console.use = cast("Any", _Otherwise(console.use, proofs=proofs))
    return console


def _found(now: datetime, number: int) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            f"tsk_01k{place}9m2p4q6r8s0t2v4w6y8z",
            created_at=now - timedelta(hours=4),
            version=place * 7,
            queue="mail" if place % 2 else WIDE,
            move="succeed",
            at=now - timedelta(hours=3, minutes=place),
            detail=f"from mail/INFLIGHT to {'mail' if place % 2 else WIDE}/SUCCEEDED",
        )
        for place in range(1, number + 1)
    )
