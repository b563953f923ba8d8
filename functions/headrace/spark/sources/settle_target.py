"""Where rows settle tasks: the options of a write by the format ``headrace``, and its columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.spark.sources import QUEUE, connect
from headrace.spark.sources.badrows import BadRows, bad_rows
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.options import (
    SourceOption,
    check_queues,
    parsed,
    queue_name,
    refused,
)
from headrace.spark.sources.rows import COLUMNS, QUEUE_COLUMN, column_names

WRITING: Final = (
    SourceOption(
        "queue",
        queue_name,
        "the queue that the rows were leased from; else the column `queue` says it, as it was read",
    ),
    SourceOption("to", queue_name, "where a row is moved that names no `to_queue`"),
    SourceOption(
        "bad_rows",
        bad_rows,
        "the task of a row that cannot be carried out: without this option the task is dead,"
        " with the reason; `fail` leaves it and fails the write when the others are settled, `drop`"
        " fails its attempt, `dead:QUEUE` moves it there as it is",
    ),
    *connect.OPTIONS,
)


@dataclass(frozen=True, slots=True)
class SettleTarget:
    """Where rows are settled: tasks of *queue*, or without one of the queue that each row names.

    A row that names no ``to_queue`` moves its task to the queue *to*.  *bad_rows* says what happens
    to the task of a row that cannot be carried out; without it the task is dead.
    """

    connection: StoreConnection
    queue: str | None
    to: str | None = None
    bad_rows: BadRows | None = None

    @property
    def default(self) -> str:
        """Return the action of a row that names none."""
        return "move" if self.to else "succeed"


def settle_target(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SettleTarget:
    """Return where rows of *schema* are settled, as the options *given* say.

    Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
    """
    values = parsed(WRITING, given, of=QUEUE)
    if overwrite:
        message = (
            f'{QUEUE}: say .mode("append"): tasks are settled, and there is nothing to replace'
        )
        raise InvalidRequest(message)
    names, wrong = column_names([column.name for column in schema])
    by_name = {column.name: column.dataType.simpleString() for column in schema}
    types = {column: by_name[name] for column, name in names.items()}
    wrong += [
        FieldError(name, f"must be a {wanted}, not {types.get(name, 'missing')}")
        for name, wanted in COLUMNS.items()
        if types.get(name, wanted if name not in ("id", "lease") else None) != wanted
    ]
    said = {column.name.lower(): column.dataType.simpleString() for column in schema}
    unsaid = values["queue"] is None and said.get(QUEUE_COLUMN) != "string"
    missing = [FieldError("queue", "must be given, or be a column of text, as it was read")]
    if wrong or unsaid:
        raise refused(missing if unsaid else [], of=QUEUE, columns=wrong)
    connection = StoreConnection.of(values)
    target = SettleTarget(connection, values["queue"], values["to"], values["bad_rows"])
    named = [("queue", target.queue), ("to", target.to)]
    if target.bad_rows is not None:
        named.append(("bad_rows", target.bad_rows.queue))
    check_queues(opened(connection).queues, named, of=QUEUE)
    return target
