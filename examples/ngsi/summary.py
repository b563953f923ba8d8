"""The numbers of one run of the demo, as a table for people and as JSON for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from headrace.domain.task import State


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
        table = Table(title="What came of it", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        table.add_row(
            "notifications in", f"{self.notifications:,}", f"{self.malformed:,} malformed"
        )
        for queue, states in self.tasks.items():
            for state in State:
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
