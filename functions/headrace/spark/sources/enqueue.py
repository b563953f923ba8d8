"""``headrace.enqueue``: the rows of any frame as tasks, each of them once.

Every id is made from its row alone, and every write requires that the id is new.  So a task that
Spark runs again, or a job that is killed and started again, adds nothing twice.  It is the API's
own enqueue, with the queue's settings, on the store directly.

An invalid row does not hold up the others: all valid rows are enqueued, then a batch fails and
names the invalid ones, and a stream warns of them; the option ``bad_rows`` changes that.  When the
rows are corrected and the job runs again, it adds only those.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from typing_extensions import override

from headrace.domain.errors import FieldError, InvalidRequest, NotFound
from headrace.domain.plan import TaskSpec
from headrace.domain.task import Task
from headrace.spark.sources import ENQUEUE, connect
from headrace.spark.sources.arrow import ArrowSink, rows_in
from headrace.spark.sources.badrows import (
    DROP,
    FAIL,
    BadRows,
    EnqueueSummary,
    bad_rows,
    dead_letter,
)
from headrace.spark.sources.newrows import (
    Identity,
    check_readable,
    new_task,
    queue_of,
    random_ids,
    wrong_columns,
)
from headrace.spark.sources.options import (
    SourceOption,
    check_queues,
    flag,
    number,
    parsed,
    plain_errors,
    queue_name,
    refused,
    word,
)
from headrace.spark.sources.rate_limit import (
    RateLimiter,
    forget_timeline,
    new_timeline,
    shared_limiter,
)
from headrace.spark.sources.rows import BadRow, chunks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS: Final = (
    SourceOption("queue", queue_name, "where all rows go; else the column `queue` says it"),
    SourceOption("id_column", word, "the column that has the ids; this, or `id_from`"),
    SourceOption(
        "id_from", word, "columns, with commas, that tell a row from all others of its queue"
    ),
    SourceOption(
        "run", word, "with `id_from`: another name makes other ids, so the rows are added again"
    ),
    SourceOption(
        "random_ids",
        flag,
        "take ids that look drawn: they are stored, not made here",
        default=False,
    ),
    SourceOption("rate", number(1, 1e6), "tasks a second, all partitions together; else no limit"),
    SourceOption(
        "bad_rows",
        bad_rows,
        "the rows that are no tasks, once the others are enqueued: `fail` fails the job and"
        " names them, as a batch does by default, `drop` warns of them, as a stream does;"
        " `dead:QUEUE` makes a task of each there, with the row and the reason",
    ),
    *connect.OPTIONS,
)
_AT_A_TIME: Final = 500  # tasks, in requests of 25, several of them under way
_BYTES: Final = 4 * 1024 * 1024  # of payloads at a time
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sending:
    """How rows become tasks: plain data, which travels to every worker."""

    connection: connect.StoreConnection
    identity: Identity
    queue: str | None = None
    random_ids: bool = False
    rate: float | None = None
    bad_rows: BadRows = FAIL
    timeline: str = ""  # of the rate that all parts of the job share
    ntz: frozenset[str] = frozenset()  # the columns whose timestamps are in no time zone


class EnqueueSource(DataSource):
    """Writes rows as tasks, in a batch or as a stream."""

    @classmethod
    def name(cls) -> str:
        return ENQUEUE

    @override
    @plain_errors()
    def writer(self, schema: "StructType", overwrite: bool) -> "EnqueueWriter":
        return EnqueueWriter(self._sending(schema, overwrite=overwrite, bad=FAIL))

    @override
    @plain_errors()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "EnqueueStreamWriter":
        return EnqueueStreamWriter(self._sending(schema, overwrite=overwrite, bad=DROP))

    def _sending(self, schema: "StructType", *, overwrite: bool, bad: BadRows) -> Sending:
        chosen = parsed(OPTIONS, self.options, of=ENQUEUE)
        names = tuple(name.strip() for name in (chosen["id_from"] or "").split(",") if name.strip())
        identity = Identity(chosen["id_column"], names, chosen["run"] or "")
        fields = [(one.name, one.dataType.simpleString()) for one in schema.fields]
        wrong = _contradictions(chosen, identity, overwrite=overwrite)
        columns = wrong_columns(fields, identity, chosen["queue"])
        if wrong or columns:
            raise refused(wrong, of=ENQUEUE, columns=columns)
        connection = connect.StoreConnection.of(chosen)
        bad = chosen["bad_rows"] or bad
        check_queues(connect.opened(connection).queues, [("bad_rows", bad.queue)], of=ENQUEUE)
        return Sending(
            connection,
            identity,
            chosen["queue"],
            chosen["random_ids"],
            chosen["rate"],
            bad,
            new_timeline() if chosen["rate"] else "",
            frozenset(name for name, kind in fields if kind == "timestamp_ntz"),
        )


class EnqueueWriter(DataSourceArrowWriter):
    """Writes one frame."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> EnqueueSummary:
        return enqueued(self.sending, rows_in(iterator))

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _ended(messages, self.sending)

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _forget(self.sending)


class EnqueueStreamWriter(ArrowSink):
    """Writes the batches of a stream; one that is written again adds nothing."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> EnqueueSummary:
        return enqueued(self.sending, rows_in(iterator, self.sending.ntz))

    @override
    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _ended(messages, self.sending)

    @override
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _forget(self.sending)


def enqueued(sending: Sending, rows: Iterable[Mapping[str, Any]]) -> EnqueueSummary:
    """Enqueue *rows*; return their outcomes.

    Raises InvalidRequest before anything is written if the ids look random; Unavailable when the
    table stays throttled: then it may be called again; and NotFound for a missing queue where bad
    rows do not fail the write.
    """
    summary = EnqueueSummary()
    limiter = shared_limiter(sending.connection, sending.timeline, sending.rate)
    for some in chunks(iter(rows), _AT_A_TIME):
        _check_ids(sending, some)
        good: dict[str, list[TaskSpec]] = {}
        payloads: dict[tuple[str, str | None], str] = {}
        bad = _Refusals(sending, summary)
        for row in some:
            try:
                check_readable(row)
                queue = sending.queue or queue_of(row)
                task = new_task(row, sending.identity, queue)
                _check_payload(task, payloads.setdefault((queue, task.id), task.payload))
                good.setdefault(queue, []).append(task)
                bad.rows[str(task.id)] = row
            except BadRow as wrong:
                bad.refuse(row, _name(row, sending.identity), str(wrong))
        for queue, tasks in good.items():
            for batch in _bounded(tasks, limiter):
                _enqueue(sending, queue, batch, bad)
        bad.send()
    return summary


@dataclass(slots=True)
class _Refusals:
    """The invalid rows among some rows, and the tasks that report them."""

    sending: Sending
    summary: EnqueueSummary
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by the id of their task
    letters: list[TaskSpec] = field(default_factory=list)

    def refuse(self, row: Mapping[str, Any], name: str, reason: str) -> None:
        """Count an invalid row, and make a task that reports it if the options say so."""
        self.summary.refuse(name, reason)
        if self.sending.bad_rows.queue is not None:
            self.letters.append(dead_letter(row, reason))

    def refuse_task(self, task_id: str | None, reason: str) -> None:
        """Count a row whose task was refused."""
        self.refuse(self.rows.get(str(task_id), {}), str(task_id), reason)

    def send(self) -> None:
        """Enqueue the tasks that report invalid rows."""
        if self.letters and self.sending.bad_rows.queue is not None:
            tasks = connect.opened(self.sending.connection).tasks
            for some in chunks(iter(self.letters), _AT_A_TIME):
                for result in tasks.enqueue(self.sending.bad_rows.queue, some):
                    if result.elsewhere not in (None, self.sending.bad_rows.queue):
                        raise InvalidRequest(
                            f"the dead letter {result.id} of a bad row was not written:"
                            f" {result.detail}, {result.elsewhere}"
                        )


def _enqueue(sending: Sending, queue: str, tasks: Sequence[TaskSpec], bad: _Refusals) -> None:
    summary = bad.summary
    try:
        results = connect.opened(sending.connection).tasks.enqueue(queue, tasks)
    except NotFound as missing:
        if sending.queue is not None and not sending.bad_rows.fails:
            raise
        for task in tasks:
            bad.refuse_task(task.id, str(missing))
        return
    strayed = [result.id for result in results if result.elsewhere and result.id]
    there = connect.store(sending.connection).read(strayed, payload=False) if strayed else {}
    for task, result in zip(tasks, results, strict=True):
        if result.outcome == "INVALID":
            bad.refuse_task(result.id, str(result.detail))
        elif result.elsewhere is not None and not _was_in(queue, there.get(result.id or "")):
            where = f"{result.detail}, {result.elsewhere}; {_way_out(sending)}"
            bad.refuse_task(result.id, where)
        else:
            summary.counts[result.outcome.lower()] += 1
            summary.differing += result.outcome == "EXISTING" and _differs(result.task, task)


def _was_in(queue: str, task: Task | None) -> bool:
    """Whether *task* was added to *queue* once, and has gone on since."""
    return task is not None and any(hop.queue == queue for hop in task.trail)


def _check_payload(task: TaskSpec, first: str) -> None:
    """Refuse a row that would be one task with another one, whose payload is *first*."""
    if task.payload != first:
        message = f"another row has the same, and so the id {task.id}, but another payload"
        raise BadRow(message)


def _differs(there: Task | None, row: TaskSpec) -> bool:
    return there is not None and there.payload is not None and there.payload != row.payload


def _way_out(sending: Sending) -> str:
    if sending.identity.id_column:
        return "name another column in id_column, or columns in id_from, which tells queues apart"
    return "another name in run makes other ids"


def _bounded(tasks: Sequence[TaskSpec], limiter: RateLimiter) -> Iterator[list[TaskSpec]]:
    """Yield *tasks* in parts that neither the memory nor the rate is too small for."""
    left = list(tasks)
    while left:
        number, size = 0, 0
        while number < len(left) and (number == 0 or size + len(left[number].payload) <= _BYTES):
            size += len(left[number].payload)
            number += 1
        number = limiter.next(number)
        yield left[:number]
        left = left[number:]


def _check_ids(sending: Sending, rows: Sequence[Mapping[str, Any]]) -> None:
    column = sending.identity.id_column
    if column and not sending.random_ids and random_ids([row[column] for row in rows]):
        message = (
            f"looks drawn ({rows[0][column]}): `uuid()` makes other ids each time Spark computes a"
            " row, and then a retry adds it twice. Name columns in id_from instead; or, if the ids"
            " are stored like this, say random_ids=true"
        )
        raise refused([FieldError("id_column", message)], of=ENQUEUE)


def _name(row: Mapping[str, Any], identity: Identity) -> str:
    return ", ".join(f"{name}={row.get(name)!r:.100}" for name in identity.columns)


def _contradictions(
    chosen: Mapping[str, Any], identity: Identity, *, overwrite: bool
) -> list[FieldError]:
    wrong = []
    if bool(identity.id_column) == bool(identity.id_from):
        message = (
            "must be given, or id_from, and not both: a row without a fixed id is added again each"
            " time it is sent"
        )
        wrong.append(FieldError("id_column", message))
    if chosen["run"] and not identity.id_from:
        wrong.append(FieldError("run", "has a meaning only with id_from"))
    if overwrite:
        wrong.append(FieldError("mode", "must be append: nothing here replaces tasks"))
    return wrong


def _ended(messages: Sequence[WriterCommitMessage | None], sending: Sending) -> None:
    """Log the outcomes of the rows.

    Raises InvalidRequest if some rows are invalid and *sending* says that this fails the write.
    All valid rows are enqueued by then.
    """
    _forget(sending)
    summary = EnqueueSummary()
    for message in messages:
        if isinstance(message, EnqueueSummary):
            summary.merge(message)
    _LOG.info("%s: rows by outcome: %s", ENQUEUE, summary.outcomes())
    if summary.differing:
        _LOG.warning(
            "%s: %s rows differ from the payload of their existing task, which keeps its own",
            ENQUEUE,
            f"{summary.differing:,}",
        )
    if summary.bad:
        text = f"{ENQUEUE}: {summary.refusal()}"
        policy = sending.bad_rows
        if policy.fails:
            raise InvalidRequest(text)
        where = f"they are in queue {policy.queue}" if policy.queue else "they are dropped"
        _LOG.warning("%s (%s)", text, where)


def _forget(sending: Sending) -> None:
    if sending.rate is not None:
        forget_timeline(sending.connection, sending.timeline)
