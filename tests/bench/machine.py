"""The machine that measures: what it is, how busy, and what its processes have used."""

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from headrace.local.engine import find_binary

_PROC: Final = Path("/proc")
_SYNCS: Final = 50
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def facts() -> dict[str, Any]:
    """The circumstances that the figures depend on besides our code."""
    return {
        "cores": cores(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "engine": _engine_version(),
    }


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """Return the load average of the last minute: processes that run or want to."""
    return os.getloadavg()[0]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, without its children's; NaN off Linux."""
    try:
        # Behind the name, which may hold spaces: state is field 3, utime and stime 14 and 15.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    seconds = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


def _processor() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _engine_version() -> str:
    command = [str(find_binary()), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
