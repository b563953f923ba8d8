"""Whose turn it is to write the lake's tables: one job at a time, and the others are told so.

Where the tables are what is in their folders, a job that only reads them takes its turn too.

A job says in ``state/turn.json`` that it is at work, and says it again twice a minute.  Who finds
that said lately is refused; who finds it silent for minutes, or its process gone from this machine,
takes the turn.  Of two that begin at once, or where one was silent and comes back, the one that
wrote last has it: the other finds that before it puts anything in place, and stops.
"""

import json
import os
import platform
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import Conflict, Unavailable
from headrace.domain.offload import Lake

if TYPE_CHECKING:
    from headrace.spark.lake.frames import LakeFrames

TURN: Final = "state/turn.json"
SAID_EVERY: Final = 30.0
"""Seconds."""
SILENT: Final = timedelta(minutes=3)

Now = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class LakeTurn:
    """The turn of one *job* on a lake."""

    lake: Lake
    job: str
    now: Now = _now
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self) -> None:
        """Take the turn.  Raises Conflict while another job has it."""
        other = self._said()
        if other is not None and self._at_work(other):
            raise self._conflict(other)
        self.say()
        self.check()

    def check(self) -> None:
        """See that it is still this job's turn.  Raises Conflict if another has taken it."""
        other = self._said()
        if other is not None and other["id"] != self.id:
            raise self._conflict(other)

    def say(self) -> None:
        """Say that this job is at work."""
        process = {"machine": platform.node(), "process": os.getpid()}
        body = {"id": self.id, "job": self.job, "said": self.now().isoformat(), **process}
        self.lake.put(TURN, json.dumps(body).encode())

    def give_back(self) -> None:
        """Let others have it, if it still is this job's."""
        said = self._said()
        if said is not None and said["id"] == self.id:
            self.lake.put(TURN, b"{}")

    def _said(self) -> dict[str, Any] | None:
        text = self.lake.get(TURN)
        said: dict[str, Any] = json.loads(text) if text else {}
        return said or None

    def _at_work(self, other: dict[str, Any]) -> bool:
        if other["machine"] == platform.node() and not _runs(other["process"]):
            return False
        return self.now() - datetime.fromisoformat(other["said"]) < SILENT

    def _conflict(self, other: dict[str, Any]) -> Conflict:
        return Conflict(
            f"a {other['job']} is at work on this lake (heard of at {other['said']}, process"
            f" {other['process']} on {other['machine']}): one job at a time; this one changed"
            " nothing more, run it again later"
        )


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def undisturbed(lake: "LakeFrames", job: str) -> Iterator[None]:
    """See that nobody writes the tables while *job* reads them, if it could notice.

    Where a log says which files there are, it could not: it reads one version.
    Raises Conflict while another job has the turn.
    """
    if lake.log is not None:
        yield
        return
    with turn_of(lake.files, job):
        yield


@contextmanager
def turn_of(lake: Lake, job: str) -> Iterator[LakeTurn]:
    """Have the turn, saying so now and then.  Raises Conflict while another job has it."""
    turn, over = LakeTurn(lake, job), threading.Event()
    turn.take()

    def go_on() -> None:
        while not over.wait(SAID_EVERY):
            try:
                turn.check()
                turn.say()
            except Conflict:
                return  # the job finds out by itself
            except Unavailable:
                continue  # it is said again soon

    heart = threading.Thread(target=go_on, daemon=True)
    heart.start()
    try:
        yield turn
    finally:
        over.set()
        heart.join()
        turn.give_back()
