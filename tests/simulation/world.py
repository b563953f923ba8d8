"""The service as its callers see it: processes over one store, each with a memory of its own.

A process answers one request at a time, as a Lambda function does.  One that dies is gone, and the
next request starts another.
"""

import json
import logging
import os
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from headrace.domain.transitions import TaskWrite
from headrace.embedded.service import EmbeddedService
from headrace.embedded.transport import CallerContext, answer
from headrace.http.request import Request, query_of
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore
from tests.simulation.faults import Died, FaultRates, FaultyStore
from tests.simulation.stage import Stage
from tests.simulation.tables import LoggedTables

ADMIN = "admin-key-of-the-simulation"
SETTINGS_TTL = 1.0
NO_FAULTS = FaultRates()


class Lost(Exception):
    """The caller got no answer: the request may have taken effect or not."""


class Refused(Exception):
    """The service answered with a problem."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {body.get('code')}: {body.get('detail')}")
        self.status, self.code = status, body.get("code")


@dataclass
class Line:
    """One line of the story."""

    at: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.actor:12}  {self.text}"


@dataclass
class World:
    """All processes, and what was said."""

    seed: int
    rates: FaultRates
    tables: LoggedTables | None = None
    stage: Stage = field(init=False)
    store: SqliteStore | LoggedTables = field(init=False)
    story: list[Line] = field(default_factory=list)
    calm: bool = False  # no faults any more
    log: list[TaskWrite] = field(default_factory=list)
    _idle: list[Service] = field(default_factory=list)
    _seen: "deque[tuple[Any, ...]]" = field(default_factory=lambda: deque(maxlen=400))

    def __post_init__(self) -> None:
        self.stage = Stage(random.Random(f"{self.seed} stage"))
        if self.tables is not None:
            self.tables.use_clock(self.stage.now)
        self.store = self.tables or SqliteStore(now=self.stage.now, keeps=lambda _: True)
        self.chance = random.Random(f"{self.seed} world")

    def say(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(Line(self.stage.passed, self.stage.actor, text))

    def process(self) -> Service:
        """Return a new process."""
        far = FaultyStore(
            cast("Store", self.store),
            self.stage,
            lambda: NO_FAULTS if self.calm else self.rates,
            self._seen,
            self.say,
        )
        settings = Settings(
            admin_key=ADMIN,
            poll_after_seconds=0.5,
            settings_ttl_seconds=SETTINGS_TTL,
        )
        use = build(settings, far.store, now=self.stage.now)
        use.sleep, use.monotonic = self.stage.sleep, self.stage.monotonic
        return use

    @contextmanager
    def borrowed(self) -> Iterator[Service]:
        """Give an idle process, or a new one; one that dies does not come back."""
        if self._idle and self.chance.random() < 0.96:
            use = self._idle.pop(self.chance.randrange(len(self._idle)))
        else:
            use = self.process()
        try:
            yield use
        except Died:
            raise Lost from None
        except Exception:
            self._idle.append(use)
            raise
        self._idle.append(use)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        repeat_key: str | None = None,
        attempt: int = 1,
    ) -> dict[str, Any]:
        """Make one request, and return what its answer says.  Raises Lost and Refused."""
        headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
        if repeat_key is not None:
            headers["idempotency-key"] = repeat_key
            headers["x-attempt"] = str(attempt)
        content = b"" if body is None else json.dumps(body).encode()
        values = query_of(urlencode(query or {}))
        context = CallerContext(within=60.0)
        request = Request(method, path, "", context, headers, values, content)
        if not self.calm and self.chance.random() < self.rates.timeouts:
            self.say("the caller gives up, and the request goes on")
            self.stage.add(f"{self.stage.actor}*", partial(self._go_on, request))
            self.stage.sleep(self.chance.choice((0.02, 0.1, 1.0)))
            raise Lost
        return self._answer(request)

    def _go_on(self, request: Request) -> None:
        with suppress(Lost, Refused):
            self._answer(request)

    def _answer(self, request: Request) -> dict[str, Any]:
        with self.borrowed() as use:
            got = answer(EmbeddedService(use, cast("Store", self.store)), request)
        shown: dict[str, Any] = json.loads(got.content) if got.content else {}
        if got.status_code >= 500:
            assert got.status_code == 503, f"{request}: {got.status_code} {shown}"
            raise Lost
        if got.status_code >= 400:
            raise Refused(got.status_code, shown)
        return shown

    def writes(self) -> list[TaskWrite]:
        """Return all writes of tasks since the beginning."""
        while found := self.store.writes(after=len_of(self.log), limit=5_000):
            self.log += found
        return self.log


def len_of(log: list[TaskWrite]) -> int:
    """Return the number of the last write."""
    return log[-1].sequence if log else -1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw everything that the service draws from a seed; keep its log quiet."""
    drawn = random.Random(f"{seed} service")
    patch = pytest.MonkeyPatch()
    patch.setattr(random, "_urandom", drawn.randbytes)
    patch.setattr(os, "urandom", drawn.randbytes)
    state, level = random.getstate(), logging.root.manager.disable
    random.seed(drawn.getrandbits(64))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        random.setstate(state)
        patch.undo()
