"""The machine that measures: what it is, how busy, and what its processes have used."""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")
_SYNCS: Final = 50
_PAGE: Final = b"x" * 4096
_sync: Final = getattr(os, "fdatasync", os.fsync)  # as SQLite does where there is one
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def facts() -> dict[str, Any]:
    """The circumstances that the figures depend on besides our code."""
    return {
        "cores": cores(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """Return the load average of the last minute: processes that run or want to."""
    return os.getloadavg()[0]


def all_cpu_seconds() -> float:
    """Return the CPU seconds that everything on this machine has used; NaN off Linux.

    With what a host has kept from it: time that nobody here could use either.
    """
    try:
        fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return float("nan")
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def filesystem(folder: Path) -> str:
    """Return the kind of file system that *folder* is on, as in ``ext4``."""
    try:
        lines = (_PROC / "mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    mounts = {Path(fields[1]): fields[2] for fields in (line.split() for line in lines)}
    real = folder.resolve()
    return next((mounts[path] for path in (real, *real.parents) if path in mounts), "unknown")


def is_disk(folder: Path) -> bool:
    """Whether what is written to *folder* outlives the power."""
    return filesystem(folder) not in _IN_MEMORY


def sync_ms(folder: Path) -> float:
    """Return how long the disk under *folder* takes to make a small write last (median, ms)."""
    with sync_timer(folder) as timed:
        return 1000 * statistics.median(timed() for _ in range(_SYNCS))


@contextmanager
def sync_timer(folder: Path) -> Iterator[Callable[[], float]]:
    """Give a function that appends a page to a file in *folder* and makes it last: in seconds."""
    with tempfile.TemporaryFile(dir=folder) as file:

        def timed() -> float:
            file.write(_PAGE)
            file.flush()
            started = time.perf_counter()
            _sync(file.fileno())
            return time.perf_counter() - started

        yield timed


def _processor() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
