"""The lake's jobs from a command line: ``headrace lake …`` starts this in a process of its own.

Progress goes to stderr, what was found to stdout.  EMR Serverless and Glue start it as it is.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import InvalidRequest
from headrace.spark.exit_codes import DONE, FAILED, INTERRUPTED, failed, hush
from headrace.spark.session import session
from headrace.store.lake import FolderLake, lake_at

if TYPE_CHECKING:
    from headrace.spark.lake.frames import LakeFrames

SETTLE_SECONDS: Final = 90.0
"""The recorder gathers changes for up to a minute."""
_PATTERNS: Final = frozenset("*?[]{}")
_LOCAL: Final = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "2g"}


class JobOutput:
    """Says how it goes on stderr, and the outcome on stdout, as text or as JSON."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._json = as_json
        self._begin = time.monotonic()

    def progress(self, text: str) -> None:
        """Say what comes next, and after how many seconds."""
        if not self._quiet:
            print(f"{time.monotonic() - self._begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    def outcome(self, body: dict[str, Any], lines: Sequence[str]) -> None:
        """Say what was done: *body* for programs, *lines* for people."""
        print(json.dumps(body, default=str, indent=1) if self._json else "\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; return its exit code."""
    options = parser().parse_args(arguments)
    output = JobOutput(quiet=options.quiet, as_json=options.json)
    hush()
    try:
        _look_for(options.lake, begins=options.run is _backfill)
        output.progress("starting Spark")
        local = {} if "PYSPARK_GATEWAY_PORT" in os.environ else _LOCAL
        spark = session(f"headrace lake {options.job}", **local)
        from headrace.spark.lake.frames import LakeFrames, absolute  # noqa: PLC0415 (needs PySpark)

        job: Callable[[LakeFrames, argparse.Namespace, JobOutput], int] = options.run
        try:
            return job(LakeFrames(spark, absolute(options.lake)), options, output)
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 (a defect is raised again there)
        return failed(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


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
        message = f"lake: there is none at {folder}; {hint}"
        raise InvalidRequest(message)


def _rollup(lake: "LakeFrames", options: argparse.Namespace, output: JobOutput) -> int:
    from headrace.spark.lake.rollup import rollup  # noqa: PLC0415 (needs PySpark)

    today = datetime.now(UTC).date()
    done = rollup(lake, today=today, everything=options.all, say=output.progress)
    days = ", ".join(map(str, done.days)) or "none"
    lines = [
        f"days        {days}",
        f"changes     {done.changes:,}",
        f"duplicates  {done.duplicates:,}",
        f"illegible   {done.illegible:,}",
    ]
    output.outcome({**asdict(done), "duplicates": done.duplicates}, lines)
    return DONE


def _compact(lake: "LakeFrames", _options: argparse.Namespace, output: JobOutput) -> int:
    from headrace.spark.lake.rollup import compact  # noqa: PLC0415 (needs PySpark)

    done = compact(lake, say=output.progress)
    lines = [
        f"{one.table}: {one.days} days, {one.files_before:,} files are now {one.files_after:,}"
        for one in done
    ]
    output.outcome({"tables": [asdict(one) for one in done]}, lines or ["nothing to compact"])
    return DONE


def _proof(lake: "LakeFrames", options: argparse.Namespace, output: JobOutput) -> int:
    from headrace.spark.lake.proof import proof  # noqa: PLC0415 (needs PySpark)

    if options.live:
        from headrace.spark.lake.proof import proof_with_table  # noqa: PLC0415 (needs boto3)

        report = proof_with_table(
            lake,
            {},
            settle_seconds=options.settle,
            now=lambda: datetime.now(UTC),
            sleep=time.sleep,
            since=options.since,
            say=output.progress,
        )
    else:
        report = proof(lake, since=options.since, now=datetime.now(UTC), say=output.progress)
    span = f"{report.first} to {report.last}" if report.first else "nothing recorded yet"
    lines = [
        f"from            {span}",
        f"tasks           {report.tasks:,}",
        f"changes         {report.changes:,}",
        f"violations      {sum(report.violations.values()):,}",
    ]
    for kind, number in report.violations.items():
        ids = [f"{one['task_id']} version {one['version']}" for one in report.examples[kind][:3]]
        lines.append(f"  {kind}: {number:,}, such as {'; '.join(ids)}")
    output.outcome(json.loads(report.text()), lines)
    return DONE if report.holds else FAILED


def _backfill(lake: "LakeFrames", options: argparse.Namespace, output: JobOutput) -> int:
    from headrace.spark.lake.backfill import backfill  # noqa: PLC0415 (needs PySpark)

    payloads = [one.strip() for one in options.payloads.split(",") if one.strip()]
    today = datetime.now(UTC).date()
    done = backfill(lake, options.export, today=today, payloads=payloads, say=output.progress)
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


def _replay(lake: "LakeFrames", options: argparse.Namespace, output: JobOutput) -> int:
    from headrace.client.client import Client  # noqa: PLC0415 (only a replay speaks to the service)
    from headrace.spark.lake import replay as jobs  # noqa: PLC0415 (needs PySpark)

    sql = options.sql if options.sql is not None else Path(options.file).read_text()
    replay = jobs.Replay(options.name, sql, options.queue, options.speed, options.start)
    rows = jobs.selected(lake, replay)
    output.progress("looking at the selection")
    found = jobs.looked_at(rows)
    lines = [
        f"tasks        {found.tasks:,}, {found.payload_bytes:,} bytes",
        f"no payload   {found.without_payload:,} (left out)",
        f"queues       {', '.join(f'{name} {n:,}' for name, n in found.queues.items()) or 'none'}",
        f"cost         {found.write_units:,} write units, USD {found.usd:.4f}",
    ]
    if found.without_payload:
        lines.insert(2, "             kept are those of the queues in HEADRACE_LAKE_PAYLOADS")
    body: dict[str, Any] = {**asdict(found), "usd": found.usd, "dry_run": options.dry_run}
    if options.dry_run:
        output.outcome(body, [*lines, "Nothing was enqueued: this was a dry run."])
        return DONE

    def say(done: jobs.Replayed) -> None:
        output.progress(f"{done.added + done.existing:,} of {found.tasks:,}")

    done = jobs.replayed(
        rows,
        replay,
        found,
        lambda codec: Client(codec=codec),
        now=datetime.now(UTC),
        say=say,
    )
    lines += [f"added        {done.added:,}", f"there before {done.existing:,}"]
    lines += [f"refused      {n:,}: {why}" for why, n in done.refused.items()]
    output.outcome({**body, **asdict(done)}, lines)
    return FAILED if done.refused else DONE


def parser() -> argparse.ArgumentParser:
    """The parser of the arguments; its result has the job to ``run``."""
    words = argparse.ArgumentParser(prog="headrace lake", description=__doc__)
    words.add_argument("--lake", default=_default_lake(), help="a folder, or s3://bucket/prefix")
    words.add_argument("--json", action="store_true", help="tell the outcome as JSON")
    words.add_argument("--quiet", action="store_true", help="no progress")
    jobs = words.add_subparsers(dest="job", required=True)

    rollup = jobs.add_parser("rollup", help="bring the tables up to the raw changes")
    rollup.add_argument("--all", action="store_true", help="make every day anew")
    rollup.set_defaults(run=_rollup)

    compact = jobs.add_parser("compact", help="put small files together")
    compact.set_defaults(run=_compact)

    proof = jobs.add_parser("proof", help="prove every history against the lifecycle")
    proof.add_argument("--since", type=day, help="the first day: 2026-11-21, or --since=-30d")
    proof.set_defaults(run=_proof)

    proof.add_argument("--live", action="store_true", help="look for lost tasks in the table too")
    proof.add_argument(
        "--settle",
        type=float,
        default=SETTLE_SECONDS,
        help="seconds until what seems lost is looked at again",
    )

    backfill = jobs.add_parser("backfill", help="learn from an export of the table")
    backfill.add_argument("export", help="its folder, …/AWSDynamoDB/<id>, or s3://…")
    backfill.add_argument(
        "--payloads",
        default=os.environ.get("HEADRACE_LAKE_PAYLOADS", ""),
        help="patterns of the queues whose payloads are kept, with commas",
    )
    backfill.set_defaults(run=_backfill)

    replay = jobs.add_parser("replay", help="enqueue again what SQL selects")
    replay.add_argument("name", help="of the replay; the same name adds nothing twice")
    what = replay.add_mutually_exclusive_group(required=True)
    what.add_argument("--sql", help="selects task_id, payload and, if wanted, version, queue, at")
    what.add_argument("--file", help="has the SQL")
    replay.add_argument("--queue", help="where everything goes")
    replay.add_argument("--speed", type=float, help="keep the times between tasks, so much faster")
    replay.add_argument("--start", type=_instant, help="when the first is due; now unless given")
    replay.add_argument("--dry-run", action="store_true", help="count and price, enqueue nothing")
    replay.set_defaults(run=_replay)
    return words


def day(text: str) -> date:
    """Read a day; a schedule, which cannot say what day it is, says how many days ago."""
    if text.startswith("-") and text.endswith("d"):
        return datetime.now(UTC).date() - timedelta(days=int(text[1:-1]))
    return date.fromisoformat(text)


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        message = "must have a time zone, such as 2026-11-21T08:00:00Z"
        raise argparse.ArgumentTypeError(message)
    return found


def _default_lake() -> str:
    data = os.environ.get("HEADRACE_DATA_DIR") or ".headrace"
    return os.environ.get("HEADRACE_LAKE") or str(Path(data, "lake"))


if __name__ == "__main__":
    sys.exit(main())
