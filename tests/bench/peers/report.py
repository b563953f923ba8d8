"""What the run says: the table for people, its notes, and the bars."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from tests.bench.peers.catalogue import HEADRACE, PEERS
from tests.bench.peers.figures import ratio
from tests.bench.results import Bar, table

IDLE_P50_MS: Final = 60.0

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
            f"[bold]{peer.title}[/]" if peer is HEADRACE else peer.title,
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
    """Return the bars that this run can tell: none without Headrace's own figures."""
    ours = figures.get(HEADRACE.name)
    if ours is None:
        return []
    kept = [
        Bar(
            f"Tasks per second : {peer.title}",
            ratio(ours, figures[peer.name]),
            1.0,
            at_most=False,
        )
        for peer in PEERS
        if peer.bar and peer.name in figures
    ]
    if ours["idle_p50_ms"] is not None:
        kept.append(
            Bar("Idle latency p50", ours["idle_p50_ms"], IDLE_P50_MS, at_most=True, unit="ms")
        )
    return kept


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
