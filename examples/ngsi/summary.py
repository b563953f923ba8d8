"""The numbers of both parts of the demo, as tables for people and as JSON for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from headrace.domain.task import FINISHED, State

_RETRIES = "failed on purpose, then tried again"


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. Units are DynamoDB's, times are seconds; ``problems`` is empty if all is well."""

    notifications: int
    malformed: int
    tasks: Mapping[str, Mapping[State, int]]
    retries: int
    reclaimed: int
    killed_worker: str
    held_when_killed: int
    rows_expected: int
    rows_out: int
    rows_written_again: int
    seconds: float
    tasks_per_second: float
    calls_per_task: float
    write_units_per_task: float
    read_units_per_task: float
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Ready for json.dumps."""
        return asdict(self)

    def table(self) -> Table:
        table = _table("The results")
        ended = {state: sum(of.get(state, 0) for of in self.tasks.values()) for state in FINISHED}
        rows = f"{self.rows_out:,} rows written, {self.rows_expected:,} expected"
        malformed = f"{self.malformed:,} malformed on purpose"
        table.add_row("notifications", f"{self.notifications:,}", malformed)
        table.add_row("SUCCEEDED", f"{ended[State.SUCCEEDED]:,}", rows)
        table.add_row("DEAD", f"{ended[State.DEAD]:,}", "each with the reason")
        table.add_row("retries", f"{self.retries:,}", _RETRIES)
        table.add_row("reclaimed", f"{self.reclaimed:,}", f"from {self.killed_worker}, killed")
        speed = f"{self.tasks_per_second:,.0f}"
        table.add_row("tasks per second", speed, f"{self.seconds:.1f} s in all")
        return table


@dataclass(frozen=True, slots=True)
class OfType:
    """What the table holds of one type of entity."""

    readings: int
    days: int


@dataclass(frozen=True, slots=True)
class SparkSummary:
    """One run. Times are in seconds; ``problems`` is empty if all is well.

    Of ``readings_came`` those are in the table that did not come again; ``readings_in_files`` are
    what a reader sees who does not sort out what came again in another batch.
    """

    notifications: int
    malformed: int
    late: int
    repeated: int
    entities: int
    rejected: Mapping[str, int]
    retries: int
    worker_killed: bool
    readings_came: int
    readings: int
    readings_in_files: int
    by_type: Mapping[str, OfType]
    spark: str
    java: str
    start_seconds: float
    seconds: float
    tasks_per_second: float
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Ready for json.dumps."""
        return asdict(self)

    def table(self) -> Table:
        table = _table("The results on Spark")
        unusual = f"{self.late:,} late by two days, {self.repeated:,} sent twice"
        table.add_row("notifications", f"{self.notifications:,}", unusual)
        table.add_row("DEAD", f"{sum(self.rejected.values()):,}", "each with the reason")
        table.add_row("retries", f"{self.retries:,}", _RETRIES)
        if self.worker_killed:
            table.add_row("workers killed", "1", "Spark ran its part again")
        again = f"of {len(self.by_type)} types; {self.readings_came - self.readings:,} came again"
        table.add_row("rows in Parquet", f"{self.readings:,}", again)
        took = f"{self.seconds:.1f} s in all, once Spark had started"
        table.add_row("tasks per second", f"{self.tasks_per_second:,.0f}", took)
        return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    return table
