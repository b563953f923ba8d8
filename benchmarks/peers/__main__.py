"""`python -m benchmarks.peers`: measure Headrace beside its peers, in turns, on this machine.

Exit status: 0 measured and ahead, 1 a bar was missed, 2 Headrace could not be measured,
130 Ctrl-C, 143 SIGTERM: brokers and workers are ended then too.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine
from benchmarks.peers import brokers, report
from benchmarks.peers.brokers import LeftOut
from benchmarks.peers.catalogue import PEERS, Peer, Programs
from benchmarks.peers.drain import WORKERS, Bench
from benchmarks.peers.figures import Drain, summary
from benchmarks.results import bars_table, finite
from headrace.local import LocalServiceError
from infra import PROJECT_ROOT

_WIDTH: Final = 110
_LEAST_TASKS: Final = 200
_SIGNALLED: Final = 128
_DEFAULT_JSON: Final = Path("bench-peers.json")
_DEFAULT_DATA: Final = PROJECT_ROOT / "build"
_DEFAULT_PYTHON: Final = PROJECT_ROOT / ".venv-tools" / "bin" / "python"


def main(arguments: list[str] | None = None) -> int:
    """Run the peers that are asked for; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.python.exists():
        parser.error(f"the peers are not installed in {options.python}: run `make bench-peers`")
    signal.signal(signal.SIGTERM, _end)
    try:
        return _run(options)
    except LocalServiceError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _end(number: int, _frame: object) -> None:
    """Leave through every block that ends what it has started."""
    signal.signal(number, signal.SIG_IGN)  # once is enough, and they take their time
    sys.exit(_SIGNALLED + number)


def _run(options: argparse.Namespace) -> int:
    options.data_dir.mkdir(exist_ok=True)
    options.data_dir = options.data_dir.resolve()  # brokers begin in folders of their own
    wanted = [peer for peer in PEERS if not options.only or peer.name in options.only]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    started = time.monotonic()
    conditions = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "sync_ms": machine.sync_ms(options.data_dir),
        "file_system": machine.filesystem(options.data_dir),
        "load_before": machine.load(),
        "versions": brokers.versions(),
        "workers": WORKERS,
    }
    console.print(_words(conditions))
    used, used_by_us = machine.all_cpu_seconds(), _own_cpu_seconds()
    figures, missing = _measure(wanted, options, console)
    seconds = time.monotonic() - started
    used, used_by_us = machine.all_cpu_seconds() - used, _own_cpu_seconds() - used_by_us
    conditions |= {
        "load_after": machine.load(),
        "cores_used_by_others": max(used - used_by_us, 0) / seconds,
        "seconds": round(seconds, 1),
    }
    console.print(report.drains_table(figures, missing))
    console.print(_load_words(conditions))
    notes = report.notes(figures, missing)
    for note in notes:
        console.print(note, markup=False)
    kept = report.bars(figures)
    if kept:
        console.print(bars_table(kept))
    wanted_too = report.goals(figures)
    if wanted_too:
        console.print(bars_table(wanted_too, "Goals, which need not be kept"))
    text = json.dumps(
        finite(
            conditions
            | {
                "peers": figures,
                "left_out": missing,
                "notes": notes,
                "bars": [bar.as_json() for bar in kept],
                "goals": [bar.as_json() for bar in wanted_too],
            }
        ),
        indent=2,
        allow_nan=False,
    )
    options.json.write_text(text + "\n", encoding="utf-8")
    console.print(f"Written to {options.json}.")
    missed = report.verdicts(kept)
    for line in missed:
        print(line, file=sys.stderr)
    for peer in report.OURS:
        if peer.name in missing:
            print(f"{peer.title} was not measured: {missing[peer.name]}", file=sys.stderr)
            return 2
    return 1 if missed else 0


def _measure(
    wanted: list[Peer], options: argparse.Namespace, console: Console
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Let the peers take turns; return the figures, and why some have none."""
    drains: dict[str, list[Drain]] = {peer.name: [] for peer in wanted}
    waits: dict[str, list[float]] = {peer.name: [] for peer in wanted}
    programs = Programs(options.python)
    missing: dict[str, str] = {}
    with _progress() as progress:
        for turn in range(options.rounds):
            for peer in wanted:
                if peer.name in missing:
                    continue
                tasks = int(peer.share * options.tasks)
                bar = progress.add_task(
                    f"Round {turn + 1} of {options.rounds}: {peer.title}", total=tasks
                )
                bench = Bench(
                    programs,
                    options.data_dir,
                    partial(progress.advance, bar),
                )
                try:
                    measured = bench.turn(peer, tasks, -(-options.probes // options.rounds))
                except (LeftOut, LocalServiceError) as error:
                    missing[peer.name] = str(error)
                    console.print(f"{peer.title} is left out: {error}", markup=False)
                    continue
                finally:
                    progress.remove_task(bar)
                drains[peer.name].append(measured.drain)
                waits[peer.name] += measured.waits
                console.print(
                    f"Round {turn + 1}: {peer.title}, {measured.drain.per_second:,.0f} tasks/s"
                )
    return {
        peer.name: {
            "title": peer.title,
            "version": programs.version(peer),
            "settings": peer.settings,
        }
        | summary(drains[peer.name], waits[peer.name])
        for peer in wanted
        if peer.name not in missing
    }, missing


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Measure how fast two workers drain a queue: Headrace beside its peers.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[peer.name for peer in PEERS],
        metavar="PEER",
        help="measure this one only; may be given several times: %(choices)s",
    )
    parser.add_argument(
        "--tasks",
        type=_at_least(_LEAST_TASKS),
        default=3000,
        metavar="N",
        help="in each queue; the slow get fewer and the fast more",
    )
    parser.add_argument(
        "--rounds", type=_at_least(1), default=4, metavar="N", help="turns of each peer"
    )
    parser.add_argument(
        "--probes",
        type=_at_least(0),
        default=100,
        metavar="N",
        help="tasks sent one by one to idle workers; 0 for none",
    )
    parser.add_argument(
        "--json", type=Path, default=_DEFAULT_JSON, metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=_DEFAULT_DATA,
        metavar="FOLDER",
        help="a folder on a real disk for the data of all brokers (default: build)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=_DEFAULT_PYTHON,
        metavar="FILE",
        help="the Python that the peers are installed in (default: of .venv-tools)",
    )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return number


def _words(conditions: dict[str, Any]) -> str:
    facts = conditions["machine"]
    versions = ", ".join(f"{name} {text}" for name, text in conditions["versions"].items())
    return (
        f"{versions}\n{facts['cores']} cores ({facts['processor']}), {facts['system']}, Python"
        f" {facts['python']}, {conditions['file_system']}, a sync {conditions['sync_ms']:.2f} ms,"
        f" load {conditions['load_before']:.1f} before"
    )


def _load_words(conditions: dict[str, Any]) -> str:
    return (
        f"State load {conditions['load_before']:.1f} before, {conditions['load_after']:.1f} after;"
        f" programs that are not of this run used {conditions['cores_used_by_others']:.1f} of"
        f" {conditions['machine']['cores']} cores."
    )


def _own_cpu_seconds() -> float:
    """The CPU seconds of this process and of the descendants that have been waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


if __name__ == "__main__":
    sys.exit(main())
