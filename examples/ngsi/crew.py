"""The demo's worker processes: started, listened to, one of them killed, the others ended.

Workers say what they do as JSON lines on their standard output; a thread for each of them keeps
the latest. What they write to standard error is kept in a file, to be shown when one fails.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.ngsi.http_client import Tally

ROWS_NAME = "rows.sqlite"
"""The rows file, in the folder that the crew is given."""

END_SECONDS = 20.0
"""How long a worker may take to finish what it has in hand; longer than one call may last."""

HOLD_SECONDS = 0.3
"""From the first lease held to the kill; well below the keepalive of the demo's queues."""


class WorkerFailed(Exception):
    """A worker ended although nobody asked it to; the text holds its last words."""


@dataclass(slots=True)
class _Member:
    """One worker process and what it has said."""

    name: str
    process: "subprocess.Popen[str]"
    errors: Path
    latest: dict[str, Any] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    holding: threading.Event = field(default_factory=threading.Event)
    listener: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        """Take in every line until the worker ends."""
        for line in self.process.stdout or ():
            # A process killed while it writes leaves half a line.
            with contextlib.suppress(ValueError):
                self.latest = json.loads(line)
                if self.latest["event"] == "holding":
                    self.held.update(self.latest["held"])
                    self.holding.set()


class Crew:
    """The workers of one demo."""

    def __init__(self, url: str, key: str, folder: Path, batch_size: int) -> None:
        """Nothing runs yet. ``folder`` takes the rows file, the crash token and the logs."""
        self.rows_path = folder / ROWS_NAME
        self._token = folder / "crash-token"
        self._folder = folder
        self._arguments = [f"--url={url}", f"--batch-size={batch_size}"]
        self._environment = {**os.environ, "HEADRACE_KEY": key}
        self._members: list[_Member] = []
        self._killed: _Member | None = None

    def start(self, number: int) -> None:
        """Start that many workers."""
        for place in range(1, number + 1):
            name = f"worker-{place}"
            errors = self._folder / f"{name}.log"
            command = [
                *(sys.executable, "-m", "examples.ngsi.worker", *self._arguments),
                *(f"--name={name}", f"--rows={self.rows_path}", f"--crash-token={self._token}"),
            ]
            with errors.open("w") as log:
                process = subprocess.Popen(  # noqa: S603 (our own module and arguments)
                    command,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=self._environment,
                    # Ctrl-C reaches the demo only, which then ends its workers in good order.
                    start_new_session=True,
                )
            self._members.append(_Member(name, process, errors))

    def offer_crash(self) -> None:
        """Lay out the token: the next worker with rows written and not yet reported freezes."""
        self._token.touch()

    def kill_frozen(self) -> str | None:
        """Kill the worker that froze, with SIGKILL, and return its name; None while none has."""
        frozen = next((each for each in self._members if each.holding.is_set()), None)
        if frozen is None or self._killed is not None:
            return None
        # Its other loop is still at work: let it lease a batch and freeze too.
        time.sleep(HOLD_SECONDS)
        self._killed = frozen
        frozen.process.kill()
        frozen.process.wait()
        frozen.listener.join()
        return frozen.name

    @property
    def killed(self) -> str:
        """Name of the killed worker, empty while there is none."""
        return self._killed.name if self._killed else ""

    @property
    def held(self) -> frozenset[str]:
        """Ids of the tasks whose leases the killed worker took with it."""
        return frozenset(self._killed.held) if self._killed else frozenset()

    @property
    def tally(self) -> Tally:
        """What the calls of all workers cost until they last said so."""
        total = Tally()
        for latest in (member.latest for member in self._members if member.latest):
            total += Tally(latest["calls"], latest["write_units"], latest["read_units"])
        return total

    @property
    def totals(self) -> Counter[str]:
        """What all workers did: reports by status, rows written, reports that came too late."""
        names = ("MOVED", "SUCCEEDED", "FAILED", "rows_new", "rows_known", "late_reports")
        return Counter(
            {name: sum(each.latest.get(name, 0) for each in self._members) for name in names}
        )

    def check(self) -> None:
        """Raise WorkerFailed when a worker has ended that was not killed here."""
        for member in self._members:
            if member is not self._killed and member.process.poll() is not None:
                status = member.process.returncode
                words = _last_words(member.errors)
                raise WorkerFailed(f"{member.name} ended by itself, status {status}\n{words}")

    @contextlib.contextmanager
    def ended_after(self) -> Iterator[None]:
        """End every worker after the block, however that ends."""
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Ask every worker to end and wait for it; kill those that do not."""
        running = [each for each in self._members if each.process.poll() is None]
        for member in running:
            member.process.send_signal(signal.SIGTERM)
        for member in running:
            try:
                member.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        for member in self._members:
            member.listener.join(END_SECONDS)
            if member.process.stdout is not None:
                member.process.stdout.close()


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
