"""The demo's worker processes: started, watched, and ended; one of them dies midway.

What they log is kept in a file for each, to be shown when one fails.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.client.calls import Consumed

END_SECONDS = 20.0
"""How long a worker may take to end, its own shutdown timeout included."""

_WORK = (
    *(sys.executable, "-m", "headrace.cli.main", "work", "examples.ngsi.rehearsal:app"),
    "--shutdown-timeout=5s",
)


class WorkerFailed(Exception):
    """A worker ended although nobody asked it to; the text holds its last words."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One worker process, what it logs and what it says in the end."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    costs: Path


class Crew:
    """The workers of one demo."""

    def __init__(self, url: str, key: str, folder: Path, rows: Path) -> None:
        """Nothing runs yet. ``folder`` takes the crash token and the logs."""
        self._folder = folder
        self._token = folder / "crash-token"
        self._environment = {
            **os.environ,
            "HEADRACE_URL": url,
            "HEADRACE_KEY": key,
            "NGSI_ROWS": str(rows),
            "NGSI_CRASH_TOKEN": str(self._token),
        }
        self._members: list[_Member] = []
        self._crash_offered = False
        self.killed = ""

    def start(self, number: int) -> None:
        """Start that many workers."""
        for place in range(1, number + 1):
            name = f"worker-{place}"
            log, costs = self._folder / f"{name}.log", self._folder / f"{name}.json"
            with log.open("wb") as errors, costs.open("wb") as output:
                process = subprocess.Popen(  # noqa: S603 (our own program and arguments)
                    [*_WORK, f"--name={name}"],
                    stdout=output,
                    stderr=errors,
                    env=self._environment,
                    # Ctrl-C reaches the demo only, which then ends its workers in good order.
                    start_new_session=True,
                )
            self._members.append(_Member(name, process, log, costs))

    def offer_crash(self) -> None:
        """Lay out the token: the next worker with rows written and not yet reported dies."""
        self._crash_offered = True
        self._token.touch()

    def check(self) -> bool:
        """Return whether the worker has died that was to, for the first time.

        Raises WorkerFailed when another has ended.
        """
        news = False
        for member in self._members:
            status = member.process.poll()
            if status is None or member.name == self.killed:
                continue
            dies = self._crash_offered and not self.killed and not self._token.exists()
            if not (dies and status == -signal.SIGKILL):
                words = _last_words(member.log)
                raise WorkerFailed(f"{member.name} ended by itself, status {status}\n{words}")
            self.killed, news = member.name, True
        return news

    @property
    def consumed(self) -> Consumed:
        """What the calls of all workers have cost; known when they have ended."""
        total = Consumed()
        for member in self._members:
            if text := member.costs.read_text():
                total += Consumed(**json.loads(text))
        return total

    @contextlib.contextmanager
    def ended_after(self) -> Iterator[None]:
        """End every worker after the block, however that ends."""
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Ask every worker to end and wait for it; kill those that do not."""
        for member in self._members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)
        for member in self._members:
            try:
                member.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
