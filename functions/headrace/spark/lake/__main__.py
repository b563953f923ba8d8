"""The lake's jobs from a command line: ``headrace lake …`` starts this in a new process.

Progress goes to stderr, the outcome to stdout.  EMR Serverless starts it as it is.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from headrace.cli.jobs import LAKE, LAKE_JOBS, OUTPUT, SparkJob, parsed
from headrace.domain.errors import InvalidRequest
from headrace.spark.exit_codes import DONE, FAILED, exit_code, silence_logs
from headrace.spark.lake.frames import LakeFrames, absolute
from headrace.spark.lake.proof import last_days, proof, proof_with_table
from headrace.spark.lake.rollup import rollup
from headrace.spark.session import session
from headrace.store.lake import FolderLake, lake_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLE_SECONDS: Final = 90.0
"""The recorder gathers changes for up to a minute."""
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PATTERNS: Final = frozenset("*?[]{}")
_LOCAL: Final = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "2g"}


class JobOutput:
    """Writes progress to stderr, and the outcome to stdout, as text or as JSON."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._json = as_json
        self._begin = time.monotonic()

    def progress(self, text: str) -> None:
        """Write the next step, and after how many seconds it begins."""
        if not self._quiet:
            print(f"{time.monotonic() - self._begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    def outcome(self, body: dict[str, Any], lines: Sequence[str]) -> None:
        """Write the outcome: *body* for programs, *lines* for people."""
        print(json.dumps(body, default=str, indent=1) if self._json else "\n".join(lines))


class LakeCall(NamedTuple):
    """One job that was requested: its lake, and its output."""

    job: str
    lake: str
    output: JobOutput
    run: Callable[[LakeFrames, JobOutput], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; return its exit code."""
    called = parsed_call(arguments)
    if isinstance(called, int):
        return called
    silence_logs()
    return exit_code(partial(_run, called), interrupted="interrupted")


def _run(called: LakeCall) -> int:
    _look_for(called.lake, begins=called.job == "backfill")
    called.output.progress("starting Spark")
    local = {} if "PYSPARK_GATEWAY_PORT" in os.environ else _LOCAL
    spark = session(f"headrace lake {called.job}", **local)
    try:
        reach(spark, called.lake)
        return called.run(LakeFrames(spark, absolute(called.lake)), called.output)
    finally:
        spark.stop()


def reach(spark: "SparkSession", address: str) -> None:
    """Make Spark know the file system of *address*: outside EMR it knows S3 as ``s3a`` only.

    Raises InvalidRequest, saying what to add, where it does not know S3 at all.
    """
    scheme = urlsplit(address).scheme
    if scheme not in ("s3", "s3a"):
        return
    context = spark.sparkContext
    java: Any = context._jvm  # noqa: SLF001 (no other way)
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001 (no other way)
    if settings.get(f"fs.{scheme}.impl", _S3A) != _S3A:
        return  # EMR's own
    if settings.getClassByNameOrNull(_S3A) is None:
        version = java.org.apache.hadoop.util.VersionInfo.getVersion()
        message = (
            f"lake: Spark here knows no S3, for {address}: add the package"
            f" org.apache.hadoop:hadoop-aws:{version}, such as by PYSPARK_SUBMIT_ARGS="
            f"'--packages org.apache.hadoop:hadoop-aws:{version} pyspark-shell'"
        )
        raise InvalidRequest(message)
    settings.set(f"fs.{scheme}.impl", _S3A)


def _look_for(address: str, *, begins: bool) -> None:
    """Raise InvalidRequest if there is no lake at *address*, where no job *begins* one."""
    patterns = sorted(_PATTERNS & set(address))
    if patterns:
        message = f"lake: {address} holds {' '.join(patterns)}, which Spark takes for patterns"
        raise InvalidRequest(message)
    lake = lake_at(address)
    if not isinstance(lake, FolderLake) or lake.folder.is_dir():
        return
    folder, hint = lake.folder.absolute(), "--lake or HEADRACE_LAKE says where it is"
    if lake.folder.exists():
        message = f"lake: {folder} is no folder; {hint}"
        raise InvalidRequest(message)
    if not begins:
        message = f"lake: there is no lake at {folder}; {hint}"
        raise InvalidRequest(message)


def _rollup(lake: LakeFrames, output: JobOutput, *, everything: bool) -> int:
    today = datetime.now(UTC).date()
    done = rollup(lake, today=today, everything=everything, say=output.progress)
    days = ", ".join(map(str, done.days)) or "none"
    lines = [
        f"days        {days}",
        f"changes     {done.changes:,}",
        f"duplicates  {done.duplicates:,}",
        f"illegible   {done.illegible:,}",
    ]
    output.outcome({**asdict(done), "duplicates": done.duplicates}, lines)
    return DONE


def _proof(
    lake: LakeFrames,
    output: JobOutput,
    *,
    since: date | None,
    everything: bool,
    live: bool,
    settle: float | None,
) -> int:
    if since is None and not everything:
        since = last_days(lake)
    if live:
        report = proof_with_table(
            lake,
            {},
            settle_seconds=SETTLE_SECONDS if settle is None else settle,
            now=lambda: datetime.now(UTC),
            sleep=time.sleep,
            since=since,
            say=output.progress,
        )
    else:
        report = proof(lake, since=since, now=datetime.now(UTC), say=output.progress)
    span = f"{report.first} to {report.last}" if report.first else "nothing recorded yet"
    lines = [
        f"since           {report.since or 'the beginning'}",
        f"from            {span}",
        f"tasks           {report.tasks:,}",
        f"changes         {report.changes:,}",
        f"violations      {sum(report.violations.values()):,}",
    ]
    for kind, number in report.violations.items():
        ids = [f"{one.task_id} version {one.version}" for one in report.examples[kind][:3]]
        lines.append(f"  {kind}: {number:,}, such as {'; '.join(ids)}")
    output.outcome(json.loads(report.text()), lines)
    return DONE if report.holds else FAILED


def _backfill(lake: LakeFrames, output: JobOutput, *, export: str, payloads: str | None) -> int:
    from headrace.spark.lake.backfill import backfill  # noqa: PLC0415 (needs PyArrow)

    patterns = os.environ.get("HEADRACE_LAKE_PAYLOADS", "") if payloads is None else payloads
    kept = [one.strip() for one in patterns.split(",") if one.strip()]
    today = datetime.now(UTC).date()
    done = backfill(lake, export, today=today, payloads=kept, say=output.progress)
    kind = "incremental" if done.incremental else "full"
    lines = [
        f"export      {done.export}, {kind}",
        f"items       {done.items:,}",
        f"days        {', '.join(map(str, done.days)) or 'none'}",
        f"changes     {done.changes:,}",
        *(f"  {move}: {number:,}" for move, number in sorted(done.moves.items())),
    ]
    output.outcome({**asdict(done), "changes": done.changes}, lines)
    return DONE


def _replay(  # noqa: PLR0913 (its options)
    lake: LakeFrames,
    output: JobOutput,
    *,
    name: str,
    sql: str | None,
    file: str | None,
    queue: str | None,
    speed: float | None,
    start: datetime | None,
    dry_run: bool,
) -> int:
    from headrace.spark.lake import replay as jobs  # noqa: PLC0415 (alone speaks to the service)
    from headrace.spark.sources.connect import StoreConnection  # noqa: PLC0415 (alone speaks to the service)

    query = Path(str(file)).read_text() if sql is None else sql
    replay = jobs.Replay(name, query, queue, speed, start)
    connection = StoreConnection.of()
    rows = jobs.selected(lake, replay)
    output.progress("looking at the selection, and asking the service")
    found = jobs.looked_at(rows, replay, connection)
    lines = [
        f"tasks        {found.tasks:,}, {found.payload_bytes:,} bytes",
        f"no payload   {found.without_payload:,} (left out)",
        f"queues       {', '.join(f'{name} {n:,}' for name, n in found.queues.items()) or 'none'}",
        f"there before {found.existing:,}",
        f"cost         {found.write_units:,} write units, USD {found.usd:.4f}",
    ]
    if found.without_payload:
        lines[2:2] = [
            "             kept are those of the queues in HEADRACE_LAKE_PAYLOADS,",
            "             but none that is outside the tasks table: large or uploaded",
        ]
    body: dict[str, Any] = {**asdict(found), "usd": found.usd, "dry_run": dry_run}
    if dry_run:
        lines += [f"refused      {n:,}: {why}" for why, n in found.refused.items()]
        output.outcome(body, [*lines, "Nothing was enqueued: this was a dry run."])
        return DONE
    output.progress(f"enqueueing {found.tasks:,}")
    done = jobs.replayed(rows, replay, found, connection, now=datetime.now(UTC))
    lines[lines.index(f"there before {found.existing:,}")] = f"there before {done.existing:,}"
    lines.append(f"added        {done.added:,}")
    lines += [f"refused      {n:,}: {why}" for why, n in done.refused.items()]
    output.outcome({**body, **asdict(done)}, lines)
    return FAILED if done.refused else DONE


def parsed_call(arguments: Sequence[str] | None) -> LakeCall | int:
    """Return the call of a command line, or the exit code of a wrong one."""
    return parsed(_command(), arguments)


def _command() -> click.Group:
    jobs: dict[str, Callable[..., int]] = {
        "rollup": _rollup,
        "proof": _proof,
        "backfill": _backfill,
        "replay": _replay,
    }
    group = click.Group("headrace lake", params=[LAKE, *OUTPUT], help=__doc__)
    for job in LAKE_JOBS:
        command = click.Command(job.name, params=[*job.params], help=job.help)
        command.callback = partial(_called, job, jobs[job.name])
        group.add_command(command)
    return group


def _called(job: SparkJob, run: Callable[..., int], **given: object) -> LakeCall:
    job.check(given)
    top = click.get_current_context().find_root().params
    output = JobOutput(quiet=top["quiet"], as_json=top["json"])
    return LakeCall(job.name, top["lake"] or _default_lake(), output, partial(run, **given))


def _default_lake() -> str:
    data = os.environ.get("HEADRACE_DATA_DIR") or ".headrace"
    return os.environ.get("HEADRACE_LAKE") or str(Path(data, "lake"))


if __name__ == "__main__":
    sys.exit(main())
