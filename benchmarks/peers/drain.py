"""One turn of one peer: a new broker, a full queue, two workers until it is empty."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.brokers import Environment, LeftOut
from benchmarks.peers.catalogue import Peer, Programs
from benchmarks.peers.cpu import CpuReading, reading
from benchmarks.peers.figures import (
    FROM,
    LATEST_FROM,
    TO,
    Drain,
    drained,
    probe_waits,
    stamps_in,
)
from benchmarks.peers.stamp import FILE_VARIABLE, RECORD, WORKER_VARIABLE
from infra import PROJECT_ROOT

WORKERS: Final = 2

_STALL_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02
# From the last task of a drain until an idle worker is probed: what it keeps doing settles.
_SETTLE_SECONDS: Final = 1.0
_PRODUCER_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured: the drain, and how long each probe waited (milliseconds)."""

    drain: Drain
    waits: list[float]


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs turns: where the programs are, where data goes, whom to tell how many tasks have run."""

    programs: Programs
    parent: Path
    reported: Callable[[int], None]

    def turn(self, peer: Peer, tasks: int, probes: int) -> Turn:
        """Fill a queue with *tasks*, drain it, then send *probes* to the idle workers.

        Raises:
            LeftOut: what it runs on is missing, or it did not get its tasks done.

        """
        self.programs.need(peer)
        with (
            tempfile.TemporaryDirectory(dir=self.parent, ignore_cleanup_errors=True) as folder,
            peer.broker(_made(folder, "broker")) as broker,
        ):
            stamps = Path(folder) / "stamps"
            stamps.touch()
            # Without what this shell says of a service, which is not the one measured.
            variables = {key: text for key, text in os.environ.items() if "HEADRACE" not in key}
            variables |= broker | {FILE_VARIABLE: str(stamps)}
            self._produce(peer, "fill", tasks, variables)
            with self._workers(peer, Path(folder), variables) as workers:
                readings = self._wait(peer, stamps, tasks, workers)
                drain = drained(stamps_in(stamps.read_bytes()), WORKERS, readings)
                if not probes:
                    return Turn(drain, [])
                time.sleep(_SETTLE_SECONDS)
                sent = json.loads(self._produce(peer, "probe", probes, variables))
                waits = probe_waits(
                    {int(number): int(at) for number, at in sent.items()},
                    stamps_in(stamps.read_bytes()),
                )
                return Turn(drain, waits)

    def _produce(self, peer: Peer, verb: str, count: int, variables: Environment) -> str:
        try:
            done = subprocess.run(
                self.programs.producer(peer, verb, count),
                cwd=PROJECT_ROOT,
                env=variables | {WORKER_VARIABLE: "-1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=_PRODUCER_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise LeftOut(f"enqueueing took more than {_PRODUCER_SECONDS:g} s") from error
        if done.returncode:
            raise LeftOut(f"{verb}: {_end_of(done.stderr)}")
        return done.stdout

    @contextlib.contextmanager
    def _workers(
        self, peer: Peer, folder: Path, variables: Environment
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Run the workers until the block ends; each leads a group of its own, its forks too."""
        started: list[subprocess.Popen[bytes]] = []
        try:
            for worker in range(WORKERS):
                with (folder / f"worker{worker}").open("wb") as log:
                    process = subprocess.Popen(
                        self.programs.worker(peer, worker),
                        cwd=PROJECT_ROOT,
                        env=variables | {WORKER_VARIABLE: str(worker)},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                started.append(process)
            yield started
        finally:
            _end(started)

    def _wait(
        self, peer: Peer, stamps: Path, tasks: int, workers: Sequence[subprocess.Popen[bytes]]
    ) -> list[CpuReading]:
        """Wait until all *tasks* have run; return the CPU used when the rate began and ended."""
        readings: list[CpuReading] = []
        done, moved_at = 0, time.monotonic()
        while done < tasks:
            time.sleep(_LOOK_SECONDS)
            now = min(stamps.stat().st_size // RECORD.size, tasks)
            if now > done:
                self.reported(now - done)
                done, moved_at = now, time.monotonic()
                began = done >= FROM * tasks and (
                    done >= LATEST_FROM * tasks or _all_begun(stamps, len(workers))
                )
                if (not readings and began) or (len(readings) == 1 and done >= TO * tasks):
                    read = reading(done, [worker.pid for worker in workers])
                    readings += [read] if read else []
            ended = [number for number, one in enumerate(workers) if one.poll() is not None]
            if ended or time.monotonic() > moved_at + _STALL_SECONDS:
                log = stamps.parent / f"worker{ended[0] if ended else 0}"
                what = "ended" if ended else "stood still"
                words = _end_of(log.read_text(errors="replace"))
                raise LeftOut(f"a worker {what} after {done} tasks: {words}")
        return readings


def _all_begun(stamps: Path, workers: int) -> bool:
    return len({stamp.worker for stamp in stamps_in(stamps.read_bytes())}) == workers


def _made(parent: str, name: str) -> Path:
    # The parent is ours alone; a broker that runs as somebody else must get through it.
    Path(parent).chmod(0o711)
    folder = Path(parent) / name
    folder.mkdir()
    return folder


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))


def _end_of(text: str) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:]) or "no word"
