"""Pages that a healthy, quiet service never shows: served by the console in this process."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from headrace.domain.errors import Unavailable
from tests.browser.pictures import hour
from tests.console.conftest import Browser

MANY: Final = 1_000_000


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
    """Stats as they are, with a million tasks in each state."""

    def of(self, queue: str) -> Any:
        return self._many(self._real.of(queue))

    def overview(self, *given: Any) -> Any:
        seen = self._real.overview(*given)
        return replace(seen, queues={name: self._many(one) for name, one in seen.queues.items()})

    def _many(self, one: Any) -> Any:
        rates = replace(one.rates, enqueued=98_765.4, failed=1_234.5)
        return replace(one, counts=dict.fromkeys(one.counts, MANY), age_of_oldest_ready=4e6,
                       rates=rates)  # fmt: skip


def rare() -> Mapping[str, tuple[Browser, str]]:
    """Return the console that shows it, and the page, by a name for each."""
    crowded, broken, away = hour(), hour(), hour()
    crowded.use = cast("Any", _Otherwise(crowded.use, stats=_Crowded(crowded.use.stats)))
    broken.use = cast("Any", _Otherwise(broken.use, stats=None))
    away.use.queues.store = cast("Any", _Away())
    away.clock.forward(3600)
    return {
        "all-million": (crowded, "/console"),
        "queue-million": (crowded, "/console/queues/mail"),
        "broken": (broken, "/console"),
        "away": (away, "/console/queues/mail"),
    }
