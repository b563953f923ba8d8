"""The tasks table: conditional writes in batches, and consistent reads."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, Literal

from botocore.exceptions import ClientError

from headrace.domain.change import Change, Done, Outcome, Refused, refused
from headrace.domain.errors import Unavailable
from headrace.domain.task import Task
from headrace.safe_logging import safe_logger
from headrace.store import keys
from headrace.store.base import Claim, RecordConflict, RecordWrite, Store
from headrace.store.call_scope import charge, charge_changes, charge_tasks, measured
from headrace.store.dynamo.connect import AnswerLost, aws_errors, charge_all
from headrace.store.dynamo.control import ControlTable, transaction
from headrace.store.dynamo.indexes import MatchTable, StateIndex
from headrace.store.dynamo.pages import Pages
from headrace.store.dynamo.statements import single_write, statement
from headrace.store.items import (
    ATTRIBUTES,
    Item,
    from_item,
    to_item,
)
from headrace.store.services import AwsClient

_LOG: Final = safe_logger(__name__)
_BATCH: Final = 25  # statements of one BatchExecuteStatement
_READ_BATCH: Final = 100  # items of one BatchGetItem
_TRIES: Final = 5
_REFUSALS: Final = frozenset({"ConditionalCheckFailed", "DuplicateItem"})
_TEMPORARY: Final = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)

Sender = Literal["batch", "single"]


class DynamoStore(StateIndex, MatchTable, ControlTable, Store):
    """Implements ``headrace.store.base.Store`` with a boto3 DynamoDB client.

    *sender* chooses how changes are sent: ``batch`` (up to 25 PartiQL statements in a request), or
    ``single`` (one conditional write in a request, for engines without PartiQL's RETURNING).  A
    commit of many changes sends up to *lanes* requests in parallel.
    """

    arrivals = None
    task_ends = None

    def __init__(
        self,
        client: AwsClient,
        *,
        tasks_table: str,
        control_table: str,
        sender: Sender = "batch",
        lanes: int = 1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(client, control_table, tasks_table)
        self._sender = sender
        self._sleep = sleep
        self._pool = ThreadPoolExecutor(lanes, "commit") if lanes > 1 else None

    # -- tasks ---------------------------------------------------------------------------------

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: RecordWrite | None = None,
    ) -> list[Outcome]:
        # Not in one transaction, which would cost twice the units.
        if noting and not self.put_record(noting.record, replaces=noting.replaces):
            raise RecordConflict
        known: dict[int, Outcome] = {}
        with measured() as cost:
            try:
                self._send_all(changes, known)
            except Unavailable:
                if not partly or not any(isinstance(done, Done) for done in known.values()):
                    raise
        outcomes = [known.get(place) or Refused(None) for place in range(len(changes))]
        charge_changes(changes, outcomes, cost)
        return outcomes

    def _send_all(self, changes: Sequence[Change], outcomes: dict[int, Outcome]) -> None:
        """Send batch after batch, or in parallel if that cannot change an order."""
        waiting = list(enumerate(changes))
        pool = self._pool if len(changes) > _BATCH else None
        if pool is None or len({change.task_id for change in changes}) < len(changes):
            while waiting:
                batch, waiting = _next_batch(waiting)
                self._send(dict(batch), outcomes)
            return
        batches = [waiting[start : start + _BATCH] for start in range(0, len(waiting), _BATCH)]
        sent = [
            pool.submit(copy_context().run, self._send, dict(batch), outcomes) for batch in batches
        ]
        wait(sent, return_when=FIRST_EXCEPTION)
        for one in sent:
            one.cancel()
        wait(sent)
        for one in sent:
            if not one.cancelled():
                one.result()

    def _send(self, batch: dict[int, Change], outcomes: dict[int, Outcome]) -> None:
        """Send changes of different tasks, and store each outcome as soon as it is known."""
        alone = batch
        if self._sender == "batch":
            plain = {place: change for place, change in batch.items() if not change.also}
            alone = {place: change for place, change in batch.items() if change.also}
            with self._recovering_answers(plain, outcomes):
                self._send_batch(plain, outcomes)
        for place, change in alone.items():
            with self._recovering_answers({place: change}, outcomes):
                outcomes[place] = self._transact(change) if change.also else self._send_one(change)

    @contextmanager
    def _recovering_answers(
        self, changes: Mapping[int, Change], outcomes: dict[int, Outcome]
    ) -> Iterator[None]:
        """If the answer to *changes* is lost, read which changes took effect.

        A lease that no caller knows would cost its task an attempt.  Changes that have not taken
        effect may still do so, so their outcomes stay unknown.
        """
        try:
            yield
        except AnswerLost:
            unknown = {place: one for place, one in changes.items() if place not in outcomes}
            found = self._found(change.task_id for change in unknown.values())
            for place, change in unknown.items():
                outcome = refused(change, found.get(change.task_id))
                if isinstance(outcome, Done):
                    outcomes[place] = outcome
            if not outcomes.keys() >= changes.keys():
                raise

    def _send_batch(self, batch: dict[int, Change], outcomes: dict[int, Outcome]) -> None:
        """Send up to 25 changes in one request, and those with a temporary fault again.

        The answer to a refused statement has no item, so the refused tasks are read together.
        """
        todo = batch
        if not batch:
            return
        items: dict[int, Item | None] = {}
        for _ in self._attempts():
            answered = self._execute(todo)
            items |= answered
            for place, item in answered.items():
                if item is not None:
                    outcomes[place] = Done(batch[place].insert or from_item(item))
            todo = {place: change for place, change in todo.items() if place not in items}
            if not todo:
                break
        unmade = {place: batch[place] for place, item in items.items() if item is None}
        if unmade:
            current = self._found(change.task_id for change in unmade.values())
            for place, change in unmade.items():
                outcomes[place] = refused(change, current.get(change.task_id))
        if todo:
            message = "the table is throttled; part of the request was not carried out"
            raise Unavailable(message)

    def _attempts(self) -> Iterator[int]:
        """Number the attempts at a request, and pause before each but the first."""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311  jitter is no secret
            yield attempt

    def _execute(self, todo: dict[int, Change]) -> dict[int, Item | None]:
        """Return the item of each change that was made, and None for each refused change.

        Changes with a temporary fault are left out: only they are sent again.
        """
        statements = [statement(change, self._tasks) for change in todo.values()]
        with aws_errors(), _logged(statements):
            answer = self._client.batch_execute_statement(
                Statements=statements, ReturnConsumedCapacity="TOTAL"
            )
        charge_all(answer, write=True)
        items: dict[int, Item | None] = {}
        for (place, change), one, response in zip(
            todo.items(), statements, answer["Responses"], strict=True
        ):
            error = response.get("Error")
            if error is None:
                made = to_item(change.insert) if change.insert else response.get("Item")
                items[place] = made  # the answer to a delete of a missing item has no item
            elif error["Code"] in _REFUSALS:
                items[place] = None
            elif error["Code"] not in _TEMPORARY:
                message = f"statement refused: {error['Code']}: {error.get('Message', '')}"
                _LOG.error("%s: %s", message, one["Statement"])  # its values may be payloads
                raise RuntimeError(message)
        return items

    def _send_one(self, change: Change) -> Outcome:
        write = single_write(change, self._tasks)
        with aws_errors():
            try:
                answer = getattr(self._client, write.operation)(**write.arguments)
            except self._client.exceptions.ConditionalCheckFailedException as error:
                charge(write=1.0)
                found = error.response.get("Item")
                return refused(change, from_item(found) if found else None)
        charge_all(answer, write=True)
        return Done(change.insert or from_item(answer["Attributes"]))

    def _transact(self, change: Change) -> Outcome:
        """Make a change and the writes that belong to it in one transaction.

        boto3 marks the request, so that it can be repeated after a lost answer.
        """
        items, places = transaction(change, self._tasks, self._control)
        for _ in self._attempts():
            with aws_errors():
                try:
                    answer = self._client.transact_write_items(
                        TransactItems=items, ReturnConsumedCapacity="TOTAL"
                    )
                except self._client.exceptions.TransactionCanceledException as error:
                    reasons = error.response["CancellationReasons"]
                else:
                    charge_all(answer, write=True)
                    done = change.insert or change.apply(change.seen) or change.seen
                    return Done(done) if done else Refused(None)
            failed = [reason.get("Code") == "ConditionalCheckFailed" for reason in reasons]
            charge(write=2.0 * len(items))
            if any(failed):
                return self._canceled(change, reasons[0].get("Item"), failed, places)
        message = "the table is throttled; part of the request was not carried out"
        raise Unavailable(message)

    @staticmethod
    def _canceled(
        change: Change, item: Item | None, failed: Sequence[bool], places: Sequence[int]
    ) -> Outcome:
        blocked = tuple(
            dict.fromkeys(place for place, wrong in zip(places, failed[1:], strict=True) if wrong)
        )
        if not failed[0]:
            return Refused(change.seen, blocked)
        return refused(change, from_item(item) if item else None, blocked)

    def claim(self, claim: Claim) -> None:
        claim.claim()

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        wanted = list(dict.fromkeys(task_ids))
        with measured() as cost:
            found = self._found(wanted, payload=payload, consistent=consistent)
        tasks = {task_id: task for task_id, task in found.items() if not task.is_tombstone}
        charge_tasks(len(wanted), tasks.values(), cost, consistent=consistent)
        return tasks

    def tombstones(self, task_ids: Iterable[str]) -> dict[str, Task]:
        found = self._found(task_ids)
        return {task_id: task for task_id, task in found.items() if task.is_tombstone}

    def _found(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        wanted = list(dict.fromkeys(task_ids))
        tasks = {}
        for start in range(0, len(wanted), _READ_BATCH):
            ids = wanted[start : start + _READ_BATCH]
            for item in self._read_batch(ids, payload=payload, consistent=consistent):
                task = from_item(item)
                tasks[task.id] = task
        return tasks

    def _read_batch(
        self, task_ids: Sequence[str], *, payload: bool, consistent: bool
    ) -> Iterator[Item]:
        request: dict[str, Any] = {
            "Keys": [{keys.TASK_ID: {"S": task_id}} for task_id in task_ids],
            "ConsistentRead": consistent,
        }
        if not payload:
            wanted = [attribute for attribute in ATTRIBUTES if attribute != "payload"]
            aliases = {f"#{place}": name for place, name in enumerate(wanted)}
            request |= {
                "ProjectionExpression": ",".join(aliases),
                "ExpressionAttributeNames": aliases,
            }
        pending = {self._tasks: request}
        for _ in self._attempts():
            with aws_errors():
                answer = self._client.batch_get_item(
                    RequestItems=pending, ReturnConsumedCapacity="TOTAL"
                )
            charge_all(answer, write=False)
            yield from answer["Responses"].get(self._tasks, ())
            pending = answer.get("UnprocessedKeys") or {}
            if not pending:
                return
        message = "the table is throttled; not every task could be read"
        raise Unavailable(message)

    def pages(self) -> Pages:
        """Return a reader of the table in bulk."""
        return Pages(self._client, self._tasks)


@contextmanager
def _logged(statements: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Log the texts of *statements* if the request is refused as invalid, which is a defect."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationException":
            texts = dict.fromkeys(one["Statement"] for one in statements)
            _LOG.error("%s: %s", error.response["Error"].get("Message", ""), "; ".join(texts))
        raise


def _next_batch(
    waiting: Sequence[tuple[int, Change]],
) -> tuple[list[tuple[int, Change]], list[tuple[int, Change]]]:
    """Split off up to 25 changes of different tasks: DynamoDB refuses an item twice in a batch."""
    batch: list[tuple[int, Change]] = []
    later: list[tuple[int, Change]] = []
    taken: set[str] = set()
    for place, change in waiting:
        if len(batch) < _BATCH and change.task_id not in taken:
            batch.append((place, change))
        else:
            later.append((place, change))
        taken.add(change.task_id)
    return batch, later
