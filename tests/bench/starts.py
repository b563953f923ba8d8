"""`python -m tests.bench.starts`: what it takes each function to start, beside boto3's client.

Exit status: 0 every function keeps its bar, 1 the same one does not, three times in a row.

A start is what Lambda does before the first request: a new process imports the entry point, which
gets ready what its calls need.  Beside it, in turns, a process that imports boto3 and makes a
client of DynamoDB, which is the least that many a function does.  What is compared is CPU, the
median of ten ratios of neighbours in time: a machine that gets slower meanwhile slows both.
Lambda's package has its bytecode with it (functions/Makefile), so the first round, which may
compile, does not count.
"""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from infra import PROJECT_ROOT

BOTO3: Final = "import boto3; boto3.client('dynamodb')"
BARS: Final[Mapping[str, float]] = {
    "api": 1.6,
    "console.app": 1.4,
    "authorizer": 1.2,
    "reaper": 1.2,
    "scheduler": 1.2,
    "recorder": 1.2,
    "dispatcher": 1.6,
}
_ROUNDS: Final = 10
_TRIES: Final = 3
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

# A place of its own, whatever this machine's Python may keep or not.
_BYTECODE: Final = {"PYTHONPYCACHEPREFIX": str(PROJECT_ROOT / "build" / "bytecode")}

Seconds = float
Take = Callable[[str], Seconds]


def main() -> int:
    """Measure and print, again where a bar is missed; return the exit status."""
    slow = set(BARS)
    for _ in range(_TRIES):
        slow &= set(_measure())
        if not slow:
            break
    if slow:
        print(f"These start too slowly: {', '.join(sorted(slow))}", file=sys.stderr)
    return 1 if slow else 0


def _measure() -> list[str]:
    boto3, ratios = measured(cpu_of)
    print(f"Starts, as times boto3's client ({boto3 * 1000:.0f} ms of CPU here):")
    for name, ratio in ratios.items():
        print(f"  {name:<12} {ratio:.2f}   at most {BARS[name]:.1f}")
    return missed(ratios)


def measured(take: Take, rounds: int = _ROUNDS) -> tuple[Seconds, dict[str, float]]:
    """The time boto3's client takes, and for each function how many times as much."""
    statements = {"": BOTO3} | {name: f"import {name}" for name in BARS}
    found: dict[str, list[Seconds]] = {name: [] for name in statements}
    for number in range(rounds + 1):
        for name, statement in statements.items():
            seconds = take(statement)
            if number:
                found[name].append(seconds)
    least = found[""]
    return statistics.median(least), {
        name: statistics.median(
            start / beside for start, beside in zip(found[name], least, strict=True)
        )
        for name in BARS
    }


def missed(ratios: Mapping[str, float]) -> list[str]:
    """Return the functions that take longer than their bar allows."""
    return [name for name, ratio in ratios.items() if ratio > BARS[name]]


def cpu_of(statement: str) -> Seconds:
    """Return the CPU that a new Python process takes for *statement*, from start to end."""
    environment = os.environ | ENVIRONMENT | _BYTECODE
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
