"""The numbers of both parts of the demo, as tables for people and as JSON for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from headrace.domain.task import SHOWN_STATES, State

MOST_REASON = 45
"""Characters of a reason in the table, which then fits a terminal of 80."""


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
        """One table, a line for each thing worth knowing."""
        table = Table(title="The results", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        table.add_row(
            "notifications in", f"{self.notifications:,}", f"{self.malformed:,} malformed"
        )
        for queue, states in self.tasks.items():
            for state in SHOWN_STATES:
                if states.get(state):
                    table.add_row(f"tasks {state}", f"{states[state]:,}", queue)
        table.add_row("retries", f"{self.retries:,}", "failed on purpose, then tried again")
        table.add_row(
            "reclaimed",
            f"{self.reclaimed:,}",
            f"{self.killed_worker} was killed holding {self.held_when_killed:,}",
        )
        table.add_row(
            "rows out",
            f"{self.rows_out:,}",
            f"{self.rows_expected:,} expected, {self.rows_written_again:,} came again",
        )
        table.add_row(
            "units per task",
            f"{self.write_units_per_task:.2f} w, {self.read_units_per_task:.2f} r",
            f"{self.calls_per_task:.2f} calls a task, through two queues",
        )
        table.add_row(
            "tasks per second",
            f"{self.tasks_per_second:,.0f}",
            f"in {self.seconds:.1f} s, the wait for leases included",
        )
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
        """One table, a line for each thing worth knowing."""
        table = Table(title="The results on Spark", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        table.add_row(
            "notifications in",
            f"{self.notifications:,}",
            f"{self.late:,} late by two days, {self.repeated:,} sent twice",
        )
        table.add_row(
            "entities", f"{self.entities:,}", f"{self.readings_came:,} readings of theirs"
        )
        rejected = sum(self.rejected.values())
        table.add_row("rejected", f"{rejected:,}", "DEAD in ngsi.notify, with the reason:")
        for reason, number in sorted(self.rejected.items()):
            table.add_row("", f"{number:,}", _short(reason))
        table.add_row("retries", f"{self.retries:,}", "failed on purpose, then tried again")
        if self.worker_killed:
            table.add_row("workers killed", "1", "Spark has run its part again")
        again = self.readings_came - self.readings
        table.add_row("rows in Parquet", f"{self.readings:,}", f"{again:,} came again, kept once:")
        for name, of_type in sorted(self.by_type.items()):
            days = f"{of_type.days:,} days" if of_type.days > 1 else "1 day"
            table.add_row("", f"{of_type.readings:,}", _short(f"{name}, {days}"))
        took = f"in {self.seconds:.1f} s, once Spark had started"
        table.add_row("tasks per second", f"{self.tasks_per_second:,.0f}", took)
        return table


def _short(reason: str) -> str:
    return reason if len(reason) <= MOST_REASON else f"{reason[: MOST_REASON - 1]}…"
