"""Run the stages of the gate or of the night, and print a table of their times.

A stage is a target of the Makefile.  Up to three run at once on two cores, because set-up waits for
downloads.  A stage of tests that fails runs once more, only to say whether it is flaky: the gate
fails all the same, unless each flaky test is in ``tests/quarantine.txt``.
"""

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "ci"
PIPELINE = (
    "functions/headrace/spark",
    "functions/headrace/history",
    "functions/headrace/domain",
    "tests/pipeline",
    "requirements/spark.txt",
)
AT_ONCE = 3
TRIES = 3  # of a stage that sets up: downloads fail
LAST_LINES = 4


@dataclass
class Stage:
    """A target of the Makefile, the arguments for its tool, and the stages that it needs."""

    target: str
    arguments: str = ""
    needs: Sequence[str] = ()
    seconds: float = 0.0
    cpu: float = 0.0
    result: str = "waiting"

    @property
    def is_setup(self) -> bool:
        return self.target.endswith("/.ready")

    @property
    def is_tests(self) -> bool:
        return self.target.startswith(("test", "e2e"))


PYTHON, NODE, SPARK = ".venv/.ready", "node_modules/.ready", ".venv-spark/.ready"


def spark_marks() -> str:
    """Return the mark of the Spark tests to run: `smoke` if nothing of the pipeline changed."""

    def git(*words: str) -> str:
        command = ["git", *words]
        return subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        try:
            base = git("merge-base", "HEAD", "origin/HEAD")
        except subprocess.CalledProcessError:
            base = ""
        if base in ("", git("rev-parse", "HEAD")):
            base = git("rev-parse", "HEAD~1")
        changed = git("diff", "--name-only", base, "--", *PIPELINE)
    except (OSError, subprocess.CalledProcessError):
        return "gate"
    return "gate" if changed else "smoke"


def gate() -> list[Stage]:
    """Return the stages that every change must pass, the longest first."""
    return [
        Stage(PYTHON),
        Stage(SPARK, needs=[PYTHON]),
        Stage(NODE, needs=[PYTHON]),
        Stage("build", needs=[PYTHON]),
        Stage("test", needs=[PYTHON]),
        Stage("e2e", "-m gate", needs=["build", NODE]),
        Stage("test-spark", f"-m {spark_marks()}", needs=[SPARK, NODE]),
        Stage("test-dynamodb", "-m gate", needs=[NODE]),
        Stage("check", needs=[PYTHON]),
        Stage("docs", needs=[PYTHON]),
        Stage("test-browser", "-m gate", needs=[PYTHON, NODE]),
        Stage("demo", needs=[SPARK]),
        Stage("test-wheel", needs=[PYTHON]),
    ]


def nightly() -> list[Stage]:
    """Return all else: whole suites, long searches, and every version of Python and Spark."""
    return [
        Stage(PYTHON),
        Stage(SPARK, needs=[PYTHON]),
        Stage(NODE, needs=[PYTHON]),
        Stage("build", needs=[PYTHON]),
        Stage("test-slow", needs=[PYTHON]),
        Stage("test-dynamodb", needs=[NODE]),
        Stage("e2e", needs=["build", NODE]),
        Stage("test-browser", needs=[PYTHON, NODE]),
        Stage("check-spark", needs=[SPARK]),
        Stage("test-spark", needs=[SPARK, NODE]),
        Stage("test-spark-slow", needs=["test-spark"]),
        Stage("test-spark-4.0", needs=[SPARK, NODE]),
        Stage("test-spark-4.1", needs=["test-spark-4.0"]),
        Stage("test-pythons", needs=["build"]),  # compiles the functions, which the build copies
        Stage("coverage", needs=[PYTHON, NODE]),
        Stage("mutation", needs=["coverage"]),
        Stage("test-peers", needs=[PYTHON]),
        Stage("test-generators", needs=[PYTHON]),
        Stage("audit", needs=[PYTHON]),
    ]


def run(stage: Stage, stages: dict[str, Stage]) -> str:
    """Run *stage*, print what it said, and return its result."""
    if any(stages[name].result != "passed" for name in stage.needs):
        return "skipped"
    code, text = make(stage)
    for _ in range(TRIES - 1 if stage.is_setup else 0):
        if code:
            code, text = make(stage)
    result = "FAILED" if code else "passed"
    lines = text.splitlines() if code else text.splitlines()[-LAST_LINES:]
    times = f"{stage.seconds:.0f} s, {stage.cpu:.0f} s of CPU"
    print(f"---- {stage.target}: {result}, {times}", *lines, sep="\n", flush=True)
    return result


def make(stage: Stage, *more: str) -> tuple[int, str]:
    """Run the target of *stage*; return its exit status and output, and note its times."""
    words = [stage.arguments, *more]
    if stage.is_tests:  # what failed is noted for each stage by itself
        words.append(f"-o cache_dir=.pytest_cache/{stage.target}")
    log = log_of(stage)
    began = time.monotonic()
    with log.open("w") as out:
        command = ["make", stage.target, f"ARGS={' '.join(filter(None, words))}"]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    stage.seconds += time.monotonic() - began
    stage.cpu += usage.ru_utime + usage.ru_stime
    return process.returncode, log.read_text(errors="replace")


def failed_tests(stage: Stage) -> set[str]:
    """Return the ids, without parameters, of the tests that failed in the log of *stage*."""
    log = log_of(stage).read_text(errors="replace")
    return set(re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", log, re.MULTILINE))


def quarantined() -> set[str]:
    """Return the ids of the tests on the quarantine list."""
    lines = (ROOT / "tests" / "quarantine.txt").read_text().splitlines()
    return {line.split()[1] for line in lines if line and not line.startswith("#")}


def log_of(stage: Stage) -> Path:
    return LOGS / f"{stage.target.replace('/', '-')}.log"


def run_all(stages: dict[str, Stage]) -> None:
    """Run each stage after the stages that it needs, a few at a time, in their order."""
    changed = threading.Condition()

    def next_stage() -> Stage | None:
        waiting = [stage for stage in stages.values() if stage.result == "waiting"]
        for stage in waiting:
            if not any(stages[name].result in ("waiting", "running") for name in stage.needs):
                stage.result = "running"
                return stage
        if waiting:
            changed.wait()
            return next_stage()
        return None

    def work() -> None:
        while True:
            with changed:
                stage = next_stage()
            if stage is None:
                return
            result = run(stage, stages)
            with changed:
                stage.result = result
                changed.notify_all()

    workers = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main(which: str) -> int:
    """Run the stages, and return 1 if one of them failed."""
    began = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    if which == "nightly":
        seed = os.environ.setdefault("HEADRACE_SEED", str(random.randrange(2**31)))
        os.environ.setdefault("HEADRACE_SEEDS", "3000")  # of tests/simulation
        print(f"HEADRACE_SEED={seed} repeats this night's choices", flush=True)
        listed = nightly()
    else:
        os.environ |= {"PYTHONHASHSEED": "0", "HEADRACE_SEED": "1"}
        listed = gate()
    stages = {stage.target: stage for stage in listed}
    run_all(stages)
    failed = [stage for stage in listed if stage.result != "passed"]
    for stage in list(failed):
        if stage.is_tests and stage.result == "FAILED":
            names = failed_tests(stage)
            code, _ = make(stage, "--last-failed --last-failed-no-failures=none")
            stage.result = "FAILED, and again" if code else "FLAKY: passed when repeated"
            if not code and names and names <= quarantined():
                stage.result = "passed when repeated: in quarantine"
                failed.remove(stage)
    print(f"\n{'stage':22}{'wall s':>8}{'CPU s':>8}  result")
    for stage in listed:
        print(f"{stage.target:22}{stage.seconds:8.0f}{stage.cpu:8.0f}  {stage.result}")
    cpu = sum(stage.cpu for stage in listed)
    print(f"{'all':22}{time.monotonic() - began:8.0f}{cpu:8.0f}  {cpu / 60:.1f} CPU minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
