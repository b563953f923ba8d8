"""Measure how much CPU each function needs to start, compared with a boto3 client.

Exit status: 0 every function keeps its bar, 1 a function misses it three times in a row.

A start is the work of Lambda before the first request: a new process imports the entry point from
the package that `sam build` made, and the entry point prepares its calls.  The comparison is a
process that imports boto3 and creates a client of DynamoDB.  Both are measured in turns, so a
machine that becomes slower slows both.  A function that misses its bar is measured again, three
times, by the median.  The very first process does not count, because it may compile boto3.
"""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT

BOTO3: Final = "boto3"
# The ratio hangs on the machine too: the very same packages took 1.4 to 1.5 (api) and 1.1 to 1.4
# (console) on one, 1.7 to 1.9 and 1.6 to 1.9 on another, where the same process takes 0.33 to 0.52
# seconds from one time to the next.  So a bar finds only what is much slower; what a start may read
# at all is in tests/unit/infra/test_starts.py, module by module.
BARS: Final[Mapping[str, float]] = {
    "api": 2.1,
    "console.app": 2.0,
    "authorizer": 1.5,
    "reaper": 1.5,
    "scheduler": 1.55,
    "recorder": 1.6,
    "dispatcher": 1.9,
}
_TRIES: Final = (1, 3, 3)
"""Rounds of each: one shows that all is well, which it is nearly always."""
ENVIRONMENT: Final = {
    "PYTHONPATH": f"{PROJECT_ROOT / 'functions'}{os.pathsep}{PROJECT_ROOT}",
    "AWS_LAMBDA_FUNCTION_NAME": "start",  # what makes an entry point get ready
    "AWS_REGION": "eu-west-1",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "POWERTOOLS_SERVICE_NAME": "headrace",
}

_BUILT: Final = PROJECT_ROOT / ".aws-sam" / "build"
_PYTHON: Final = PROJECT_ROOT / ".venv-build" / "bin" / "python"
"""Lambda's."""

Seconds = float
Take = Callable[[str], Seconds]


def main() -> int:
    """Measure and print, again where a bar is missed; return the exit status."""
    if sys.platform != "linux":
        print("The functions' packages start on Linux only: how fast they start is left out")
        return 0
    slow = list(BARS)
    for rounds in _TRIES:
        if slow:
            slow = _measure(slow, rounds)
    if slow:
        print(f"These start too slowly: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


def _measure(names: Sequence[str], rounds: int) -> list[str]:
    """Print the starts of *names*; return the names of the functions that miss their bar."""
    boto3, ratios = measured(cpu_of, names, rounds)
    print(f"Starts, as times boto3's client ({boto3 * 1000:.0f} ms of CPU here):")
    for name, ratio in ratios.items():
        print(f"  {name:<12} {ratio:.2f}   at most {BARS[name]:.2f}")
    return [name for name, ratio in ratios.items() if ratio > BARS[name]]


def measured(take: Take, names: Sequence[str], rounds: int) -> tuple[Seconds, dict[str, float]]:
    """The time boto3's client takes, and for each function how many times as much."""
    found: dict[str, list[Seconds]] = {name: [] for name in (BOTO3, *names)}
    take(BOTO3)
    for _ in range(rounds):
        for name, seconds in found.items():
            seconds.append(take(name))
    least = found[BOTO3]
    return statistics.median(least), {
        name: statistics.median(
            start / beside for start, beside in zip(found[name], least, strict=True)
        )
        for name in names
    }


def cpu_of(name: str) -> Seconds:
    """Return the CPU of a new process that starts a function, or boto3.

    `-P` leaves out the current folder with its console.
    """
    package = _BUILT / f"{name.partition('.')[0].capitalize()}Function"
    statement, path = f"import {name}", [package]
    if name == BOTO3:
        statement += "; boto3.client('dynamodb')"
        path = [_BUILT / "ApiFunction", _only_boto3()]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(_PYTHON), "-S", "-P", "-c", statement]
    subprocess.run(command, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@cache
def _only_boto3() -> Path:
    """Return a folder with boto3, which Lambda brings, and nothing that it would load besides."""
    folder = PROJECT_ROOT / "build" / "boto3"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("boto3", "s3transfer"):
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError(f"{name} is not installed beside this Python: run make build")
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(spec.submodule_search_locations[0])
    return folder


if __name__ == "__main__":
    sys.exit(main())
