"""`python -m benchmarks`: measure, print the tables, write the figures as JSON.

Exit status: 0 measured (with --strict: and every bar kept), 1 a bar was missed, 2 could not run,
130 Ctrl-C.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks import calls, console, cost, life, machine, wait
from benchmarks.load import LoadWatch
from benchmarks.results import Bar, PartOutcome, bars_table, finite
from benchmarks.sizes import FULL, QUICK, Sizes
from headrace.local import LocalServiceError

_WIDTH: Final = 100
_DEFAULT_JSON: Final = Path("bench-latest.json")
_DEFAULT_DATA: Final = Path(__file__).resolve().parents[1] / "build"

Part = Callable[[Sizes, Progress], PartOutcome]


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that are asked for; return the exit status."""
    options = _parser().parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    parts: dict[str, Part] = {
        "cost": cost.run,
        "calls": partial(calls.run, parent=options.data_dir),
        "life": partial(life.run, parent=options.data_dir),
        "console": console.run,
        "wait": partial(wait.run, parent=options.data_dir),
    }
    wanted = {name: part for name, part in parts.items() if options.only in (None, name)}
    try:
        report, bars = _measure(wanted, sizes, _terminal())
    except LocalServiceError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    report["quick"] = options.quick
    text = json.dumps(finite(report), indent=2, ensure_ascii=False, allow_nan=False)
    options.json.write_text(text + "\n", encoding="utf-8")
    print(f"Written to {options.json}.")
    return 1 if options.strict and not all(bar.passed for bar in bars) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure cost, latency and throughput of Headrace.",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument(
        "--only",
        choices=("cost", "calls", "life", "console", "wait"),
        help="measure one part only",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument(
        "--json", type=Path, default=_DEFAULT_JSON, metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=_DEFAULT_DATA,
        metavar="FOLDER",
        help="a folder on a real disk for what is measured on one (default: build)",
    )
    return parser


def _measure(
    parts: dict[str, Part], sizes: Sizes, terminal: Console
) -> tuple[dict[str, Any], list[Bar]]:
    """Run the *parts*, print what they say; return the report and its bars."""
    report: dict[str, Any] = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "sizes": asdict(sizes),
        "parts": {},
    }
    terminal.print(_conditions(report["machine"]))
    bars: list[Bar] = []
    started = time.monotonic()
    for name, part in parts.items():
        watch = LoadWatch()
        with _progress() as progress:
            outcome = part(sizes, progress)
        load = watch.state()
        for shown in outcome.tables:
            terminal.print(shown)
        for note in outcome.notes:
            terminal.print(note, highlight=False)
        terminal.print(str(load), highlight=False)
        report["parts"][name] = outcome.figures | {"notes": outcome.notes, "load": load.as_json()}
        bars += outcome.bars
    terminal.print(bars_table(bars))
    return report | {
        "bars": [bar.as_json() for bar in bars],
        "seconds": round(time.monotonic() - started, 1),
    }, bars


def _conditions(facts: dict[str, Any]) -> str:
    return (
        f"{facts['cores']} cores ({facts['processor']}), {facts['system']}, Python"
        f" {facts['python']}, SQLite {facts['sqlite']}"
    )


def _terminal() -> Console:
    """Print to a terminal as wide as it is; to anything else as wide as the tables need."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_WIDTH)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


if __name__ == "__main__":
    sys.exit(main())
