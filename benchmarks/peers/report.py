"""What the run says: the table for people, its notes, and the bars."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from benchmarks.peers.catalogue import FILE, HTTP, PEERS, Peer
from benchmarks.peers.figures import ratio
from benchmarks.results import Bar, table

OURS: Final = (FILE, HTTP)
CPU_SECONDS: Final = 0.7  # of all processes, for 1,000 tasks
IDLE_P50_MS: Final = 5.0
IDLE_P50_GOAL_MS: Final = 2.0

# How many times as fast as the peer of that name, at least.
_FILE_RATES: Final = {
    "dramatiq": 0.8,
    "huey": 1.0,
    "celery": 1.0,
    "procrastinate": 1.0,
    "rq-simple": 1.0,
    "rq-fork": 1.0,
}
_HTTP_RATES: Final = {"celery": 3.0}
_FILE_GOALS: Final = {"dramatiq": 1.0}
_HTTP_GOALS: Final = {"huey": 1.0}

_CPU: Final = f"{FILE.title} CPU of all processes"

Figures = Mapping[str, Mapping[str, Any]]


def drains_table(figures: Figures, missing: Mapping[str, str]) -> Table:
    """Return a row for each peer measured or left out, the fastest first."""
    made = table(
        "Two workers, tasks that do nothing (Workers and Broker: CPU seconds per 1,000 tasks)",
        *("Peer", "Version", "Tasks/s", "Least-most", "Workers", "Broker", "Idle p50", "Idle p95"),
    )
    rows = [peer for peer in PEERS if peer.name in figures]
    for peer in sorted(rows, key=lambda peer: -figures[peer.name]["per_second"]):
        row = figures[peer.name]
        made.add_row(
            f"[bold]{peer.title}[/]" if peer in OURS else peer.title,
            row["version"],
            f"{row['per_second']:,.0f}",
            f"{row['per_second_least']:,.0f}-{row['per_second_most']:,.0f}",
            f"{row['workers_cpu_per_1000']:.2f}",
            f"{row['broker_cpu_per_1000']:.2f}",
            _milliseconds(row["idle_p50_ms"]),
            _milliseconds(row["idle_p95_ms"]),
        )
    for peer in PEERS:
        if peer.name in missing:
            made.add_row(peer.title, "", "left out")
    return made


def notes(figures: Figures, missing: Mapping[str, str]) -> list[str]:
    """Notes on each row, and what is odd about this run."""
    lines = [f"{peer.title}: {peer.settings}." for peer in PEERS if peer.name in figures]
    lines += [
        f"{peer.title} left out: {missing[peer.name]}" for peer in PEERS if peer.name in missing
    ]
    for peer in PEERS:
        row = figures.get(peer.name)
        if row and row["least_share"] < 0.25:
            lines.append(
                f"{peer.title}: one of the workers ran {row['least_share']:.0%} of a drain."
            )
        if row and row["repeated"]:
            lines.append(f"{peer.title}: {row['repeated']} tasks ran more than once.")
    return lines


def bars(figures: Figures) -> list[Bar]:
    """The bars that this run has the figures for; a run that misses one fails."""
    kept = _rates(FILE, _FILE_RATES, figures) + _rates(HTTP, _HTTP_RATES, figures)
    if FILE.name in figures:
        cpu = figures[FILE.name]["cpu_per_1000"]
        kept.append(Bar(_CPU, cpu, CPU_SECONDS, at_most=True, unit="s/1,000"))
    return kept + _idle(IDLE_P50_MS, figures)


def goals(figures: Figures) -> list[Bar]:
    """Likewise what lies beyond the bars; a run that misses one does not fail."""
    wanted = _rates(FILE, _FILE_GOALS, figures) + _rates(HTTP, _HTTP_GOALS, figures)
    if FILE.name in figures and "dramatiq" in figures:
        cpu, limit = (figures[name]["cpu_per_1000"] for name in (FILE.name, "dramatiq"))
        wanted.append(Bar(f"{_CPU}, Dramatiq's", cpu, limit, at_most=True, unit="s/1,000"))
    return wanted + _idle(IDLE_P50_GOAL_MS, figures)


def _rates(ours: Peer, least: Mapping[str, float], figures: Figures) -> list[Bar]:
    if ours.name not in figures:
        return []
    return [
        Bar(
            f"{ours.title} tasks/s : {peer.title}",
            ratio(figures[ours.name], figures[peer.name]),
            least[peer.name],
            at_most=False,
        )
        for peer in PEERS
        if peer.name in least and peer.name in figures
    ]


def _idle(limit: float, figures: Figures) -> list[Bar]:
    return [
        Bar(
            f"{ours.title} idle latency p50",
            figures[ours.name]["idle_p50_ms"],
            limit,
            at_most=True,
            unit="ms",
        )
        for ours in OURS
        if ours.name in figures and figures[ours.name]["idle_p50_ms"] is not None
    ]


def verdicts(kept: Sequence[Bar]) -> list[str]:
    """Return a line for each bar that was missed."""
    return [
        f"Missed: {bar.name} is {bar.measured:.2f} {bar.unit}".rstrip()
        + f", must be {'under' if bar.at_most else 'more than'} {bar.limit:g} {bar.unit}".rstrip()
        for bar in kept
        if not bar.passed
    ]


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"
