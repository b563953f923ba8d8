"""Every condition and effect of a Change, in both forms in which DynamoDB is told it.

The texts are spelled out, because what the two engines accept was tried letter by letter.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain import plan, settle
from headrace.domain.change import (
    AfterLength,
    AtMost,
    Begins,
    Change,
    Condition,
    Entry,
    Equals,
    In,
    Shorter,
    Unset,
    UnsetOrAfter,
    UnsetOrAtMost,
)
from headrace.domain.lifecycle import Action, rule
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.settle import Held
from headrace.domain.task import ErrorKind, Hop, Place, State, Task, TaskError
from headrace.store.items import FIELDS, Value, to_item
from headrace.store.statements import single_write, statement

NOW = datetime(2026, 11, 21, 8, 0, 0, 123_456, tzinfo=UTC)
MICROS = {"N": "1795248000123456"}
HEARTBEAT = rule(Action.HEARTBEAT, State.INFLIGHT, State.INFLIGHT)
SUCCEED = rule(Action.SUCCEED, State.INFLIGHT, State.SUCCEEDED)
DEQUEUE = rule(Action.DEQUEUE, State.ENQUEUED, State.INFLIGHT)
ENQUEUE = rule(Action.ENQUEUE, None, State.ENQUEUED)
MAIL = Queue("mail", QueueSettings(), NOW, NOW)
KEY: list[Value] = [{"S": "t-1"}]
MOVED: list[Value] = [{"N": "1"}, {"S": "heartbeat"}]  # version and last_move, set by every change
COUNT = 'SET "version" = "version" + ?, "last_move" = ?'


@dataclass(frozen=True)
class Forms:
    """One condition in both forms; ``value`` None when it needs none."""

    condition: Condition
    partiql: str
    expression: str
    attribute: str
    value: Value | None


CONDITIONS = [
    Forms(
        In("mail", State.INFLIGHT),
        'begins_with("queue#state", ?)',
        "begins_with(#c, :c)",
        "queue#state",
        {"S": "mail#INFLIGHT#"},
    ),
    Forms(Equals("lease_id", "lse_1"), '"lease"."id" = ?', "#c = :c", "lease.id", {"S": "lse_1"}),
    Forms(Equals("version", 7), '"version" = ?', "#c = :c", "version", {"N": "7"}),
    Forms(Equals("lease_expires_at", NOW), '"lease"."expires_at" = ?', "#c = :c",
         "lease.expires_at", MICROS),
    Forms(AtMost("scheduled_at", NOW), '"scheduled_at" <= ?', "#c <= :c", "scheduled_at", MICROS),
    Forms(
        UnsetOrAfter("expires_at", NOW),
        '("expires_at" IS MISSING OR "expires_at" > ?)',
        "(attribute_not_exists(#c) OR #c > :c)",
        "expires_at",
        MICROS,
    ),
    Forms(
        UnsetOrAtMost("returned_at", NOW),
        '("returned_at" IS MISSING OR "returned_at" <= ?)',
        "(attribute_not_exists(#c) OR #c <= :c)",
        "returned_at",
        MICROS,
    ),
    Forms(Unset("retry"), '"retry" IS MISSING', "attribute_not_exists(#c)", "retry", None),
    Forms(
        Shorter("errors", 20),
        '"errors"[19] IS MISSING',
        "attribute_not_exists(#c[19])",
        "errors",
        None,
    ),
    Forms(
        Begins("lease_id", "lsg_1:"),
        'begins_with("lease"."id", ?)',
        "begins_with(#c, :c)",
        "lease.id",
        {"S": "lsg_1:"},
    ),
    Forms(
        Begins("settled_lease_id", "lsg_1", not_so=True),
        '("settled_lease_id" IS MISSING OR NOT begins_with("settled_lease_id", ?))',
        "(attribute_not_exists(#c) OR NOT begins_with(#c, :c))",
        "settled_lease_id",
        {"S": "lsg_1"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("reported", CONDITIONS, ids=lambda reported: repr(reported.condition)[:40])
def test_a_condition_as_partiql(reported: Forms) -> None:
    sent = statement(Change(HEARTBEAT, "t-1", when=(reported.condition,)), "tasks")

    expected = (
        f'UPDATE "tasks" {COUNT} WHERE "task_id" = ? AND {reported.partiql} RETURNING ALL NEW *'
    )
    assert sent["Statement"] == expected
    values = [reported.value] if reported.value else []
    assert sent["Parameters"] == [*MOVED, *KEY, *values]


@pytest.mark.parametrize("reported", CONDITIONS, ids=lambda reported: repr(reported.condition)[:40])
def test_a_condition_as_an_expression(reported: Forms) -> None:
    write = single_write(Change(HEARTBEAT, "t-1", when=(reported.condition,)), "tasks")

    assert write.operation == "update_item"
    alias, value = _alias(write.arguments, reported.attribute), "(none)"
    if reported.value:
        value = _slot(write.arguments, reported.value)
    wanted = reported.expression.replace("#c", alias).replace(":c", value)
    exists = f"attribute_exists({_alias(write.arguments, 'task_id')})"
    assert write.arguments["ConditionExpression"] == f"{exists} AND {wanted}"


def test_every_kind_of_condition_is_spelled_out_here() -> None:
    assert {type(reported.condition) for reported in CONDITIONS} == set(Condition.__args__)


LEASE = {"lease_id": "lse_1", "lease_expires_at": NOW, "lease_length": timedelta(seconds=30)}
LEASE_VALUE: Value = {
    "M": {"id": {"S": "lse_1"}, "expires_at": MICROS, "length": {"N": "30000000"}}
}
HOP = Hop("mail", NOW)
HOP_VALUE: Value = {"L": [{"S": '["mail",1795248000123456]'}]}

EFFECTS = [
    (
        Change(SUCCEED, "t-1", put={"result": "[1]", "finished_at": NOW}),
        'SET "result" = ?, "finished_at" = ?, "version" = "version" + ?, "last_move" = ?',
        "SET #result = :0, #finished_at = :1, #version = #version + :2, #last_move = :3",
        [{"S": "[1]"}, MICROS, {"N": "1"}, {"S": "succeed"}],
    ),
    (
        Change(HEARTBEAT, "t-1", put={"lease_expires_at": AfterLength(NOW)}),
        f'SET "lease"."expires_at" = "lease"."length" + ?, {COUNT[4:]}',
        "SET #lease.#expires_at = #lease.#length + :0, #version = #version + :1, #last_move = :2",
        [MICROS, *MOVED],
    ),
    (
        Change(HEARTBEAT, "t-1", append={"trail": HOP}),
        'SET "trail" = list_append("trail", ?), "version" = "version" + ?, "last_move" = ?',
        "SET #trail = list_append(#trail, :0), #version = #version + :1, #last_move = :2",
        [HOP_VALUE, *MOVED],
    ),
    (
        Change(HEARTBEAT, "t-1", add={"attempts": -1}),
        'SET "attempts" = "attempts" + ?, "version" = "version" + ?, "last_move" = ?',
        "SET #attempts = #attempts + :0, #version = #version + :1, #last_move = :2",
        [{"N": "-1"}, *MOVED],
    ),
    (
        Change(HEARTBEAT, "t-1", clear=("progress", "retained_until")),
        f'{COUNT} REMOVE "progress" REMOVE "ttl"',
        "SET #version = #version + :0, #last_move = :1 REMOVE #progress, #ttl",
        MOVED,
    ),
    (
        Change(HEARTBEAT, "t-1", clear=plan.LEASE),
        f'{COUNT} REMOVE "lease"',
        "SET #version = #version + :0, #last_move = :1 REMOVE #lease",
        MOVED,
    ),
    (
        Change(DEQUEUE, "t-1", put=LEASE),
        f'SET "lease" = ?, {COUNT[4:]}',
        "SET #lease = :0, #version = #version + :1, #last_move = :2",
        [LEASE_VALUE, {"N": "1"}, {"S": "dequeue"}],
    ),
    (
        Change(SUCCEED, "t-1", put={"place": Place("mail", State.SUCCEEDED, 3)}),
        'SET "queue#state" = ?, "version" = "version" + ?, "last_move" = ?',
        "SET #queue#state = :0, #version = #version + :1, #last_move = :2",
        [{"S": "mail#SUCCEEDED#3"}, {"N": "1"}, {"S": "succeed"}],
    ),
]


@pytest.mark.parametrize(("change", "partiql", "_expression", "values"), EFFECTS)
def test_an_effect_as_partiql(
    change: Change, partiql: str, _expression: str, values: list[Value]
) -> None:
    sent = statement(change, "tasks")

    expected = f'UPDATE "tasks" {partiql} WHERE "task_id" = ? RETURNING ALL NEW *'
    assert sent == {"Statement": expected, "Parameters": [*values, *KEY]}


@pytest.mark.parametrize(("change", "_partiql", "expression", "values"), EFFECTS)
def test_an_effect_as_an_expression(
    change: Change, _partiql: str, expression: str, values: list[Value]
) -> None:
    arguments = single_write(change, "tasks").arguments

    written = arguments["UpdateExpression"]
    for alias in sorted(arguments["ExpressionAttributeNames"], key=len, reverse=True):
        written = written.replace(alias, "#" + arguments["ExpressionAttributeNames"][alias])
    assert written == expression.replace(":", ":v")
    assert list(arguments["ExpressionAttributeValues"].values()) == values
    assert arguments["Key"] == {"task_id": {"S": "t-1"}}
    assert arguments["ReturnValues"] == "ALL_NEW"


def test_a_new_task_is_written_only_where_there_is_none() -> None:
    task = Task("t-1", Place("mail", State.ENQUEUED, 0), NOW, NOW, NOW, NOW, payload="{}")
    change = Change(ENQUEUE, "t-1", insert=task)

    sent, write = statement(change, "tasks"), single_write(change, "tasks")

    slots = ",".join(f"'{attribute}':?" for attribute in to_item(task))
    assert sent["Statement"] == f'INSERT INTO "tasks" VALUE {{{slots}}}'
    assert sent["Parameters"] == list(to_item(task).values())
    assert write.operation == "put_item"
    assert write.arguments["Item"] == to_item(task)
    alias = _alias(write.arguments, "task_id")
    assert write.arguments["ConditionExpression"] == f"attribute_not_exists({alias})"


def test_a_removal_gives_back_what_was_there() -> None:
    change = Change(SUCCEED, "t-1", when=(Equals("lease_id", "lse_1"),), gone=True)

    sent, write = statement(change, "tasks"), single_write(change, "tasks")

    expected = 'DELETE FROM "tasks" WHERE "task_id" = ? AND "lease"."id" = ? RETURNING ALL OLD *'
    assert sent == {"Statement": expected, "Parameters": [{"S": "t-1"}, {"S": "lse_1"}]}
    assert (write.operation, write.arguments["ReturnValues"]) == ("delete_item", "ALL_OLD")
    assert "UpdateExpression" not in write.arguments
    exists, lease = (_alias(write.arguments, name) for name in ("task_id", "lease.id"))
    condition = f"attribute_exists({exists}) AND {lease} = :v0"
    assert write.arguments["ConditionExpression"] == condition


def test_a_removal_without_conditions_sends_no_empty_values() -> None:
    """DynamoDB refuses a request whose ExpressionAttributeValues are empty."""
    change = Change(SUCCEED, "t-1", gone=True)

    assert "ExpressionAttributeValues" not in single_write(change, "tasks").arguments


@pytest.mark.parametrize("form", ["put_item", "update_item", "delete_item"])
def test_a_single_write_brings_its_cost_and_the_item_that_refuses(form: str) -> None:
    task = _inflight()
    changes = [
        Change(ENQUEUE, "t-1", insert=task),
        Change(HEARTBEAT, "t-1"),
        Change(SUCCEED, "t-1", gone=True),
    ]
    (arguments,) = (
        write.arguments
        for write in (single_write(change, "tasks") for change in changes)
        if write.operation == form
    )

    assert arguments["TableName"] == "tasks"
    assert arguments["ReturnConsumedCapacity"] == "TOTAL"
    assert arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


def planned() -> list[Change]:
    """Return a change of each kind that is planned, blind and by sight."""
    task = _inflight()
    waiting = Entry("t-1", Place("mail", State.ENQUEUED, 0), NOW)
    error = TaskError(1, NOW, "ada", ErrorKind.FAILED, "Oops", "it broke", "line 1")
    new = TaskSpec("{}", tags={"a": "1"}, keepalive=2.5)
    changes = [
        plan.enqueue(new, MAIL, task_id="t-1", due_at=NOW, now=NOW, token="x"),
        plan.dequeue(waiting, MAIL, lease_id="lse_1", now=NOW, worker="ada", keepalive=None),
        plan.expire(waiting, MAIL, now=NOW),
        plan.purge(waiting),
        plan.delete(task, unless_changed=True),
        settle.reclaim(task, MAIL, now=NOW, spread=0.5),
    ]
    for held in (Held("t-1", "mail", "lse_1", 1, "ada"), Held.of(task)):
        changes += [
            settle.heartbeat(held, MAIL, now=NOW, keepalive=9, progress="1"),
            settle.succeed(held, MAIL, now=NOW, result="1"),
            settle.release(held, MAIL, now=NOW, delay=1),
            settle.move(held, MAIL, now=NOW, delay=1, payload="1", tags={}),
        ]
        changes += [
            settle.fail(
                held, MAIL, now=NOW, error=error, retryable=retryable, delay=None, spread=0.5
            )
            for retryable in (True, False)
        ]
    return changes


def _inflight() -> Task:
    return Task(
        "t-1",
        Place("mail", State.INFLIGHT, 0),
        *(NOW,) * 4,
        payload="{}",
        attempts=1,
        lease_id="lse_1",
        lease_expires_at=NOW,
        lease_length=timedelta(seconds=30),
        worker="ada",
    )


@pytest.mark.parametrize("change", planned(), ids=lambda change: str(change.rule.action))
def test_every_planned_change_names_and_fills_all_its_slots(change: Change) -> None:
    sent, arguments = statement(change, "tasks"), single_write(change, "tasks").arguments

    assert sent["Statement"].count("?") == len(sent["Parameters"])
    condition_and_update = arguments["ConditionExpression"] + arguments.get("UpdateExpression", "")
    names, values = (
        arguments["ExpressionAttributeNames"],
        arguments.get("ExpressionAttributeValues", {}),
    )
    assert all(slot in condition_and_update for slot in (*names, *values))
    stored = {part for path, _ in FIELDS.values() for part in path.split(".")}
    assert set(names.values()) <= stored


@pytest.mark.parametrize("change", planned(), ids=lambda change: str(change.rule.action))
def test_partiql_sets_no_attribute_twice_and_removes_none_it_sets(change: Change) -> None:
    if change.insert is not None or change.gone:
        return
    assigned = [*change.put, *change.append, *change.add]

    assert len(set(assigned)) == len(assigned)
    assert not set(assigned) & set(change.clear)
    assert not {"version", "last_move"} & {*assigned, *change.clear}


def _alias(arguments: dict[str, Any], path: str) -> str:
    aliases = {name: alias for alias, name in arguments["ExpressionAttributeNames"].items()}
    return ".".join(aliases[part] for part in path.split("."))


def _slot(arguments: dict[str, Any], value: Value) -> str:
    """Return the last slot that holds *value*: conditions come behind effects, if at all."""
    slots = [s for s, held in arguments["ExpressionAttributeValues"].items() if held == value]
    return str(slots[-1])
