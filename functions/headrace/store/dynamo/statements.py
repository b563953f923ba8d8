"""A Change for DynamoDB: as a PartiQL statement, or as a single conditional write.

Pure text, made from the same conditions and effects in both forms.  Every attribute name is
quoted or aliased, because ``queue#state`` is no bare word and DynamoDB reserves hundreds of others.
PartiQL has only forms that the engine of AWS accepts (see tests/dynamodb).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from headrace.domain.change import (
    AfterLength,
    Change,
    Condition,
    In,
)
from headrace.domain.patch import When
from headrace.store import keys
from headrace.store.items import FIELDS, MAPS, MICROS, Item, Value, to_item

_IN_STATE: Final = "{}#{}#"  # the begin of partition() for any label


def _in(condition: In) -> Value:
    return {"S": _IN_STATE.format(condition.queue, condition.state)}


def _encoded(name: str, value: object) -> Value:
    return FIELDS[name][1].encode(value)


def _path(name: str) -> str:
    return FIELDS[name][0]


def _whole(attribute: str, fields: Mapping[str, Any]) -> bool:
    """Return whether *fields* contain all fields of a map."""
    return set(MAPS[attribute]) <= set(fields)


def _as_map(attribute: str, fields: Mapping[str, Any]) -> Value:
    parts = {_path(name).partition(".")[2]: name for name in MAPS[attribute]}
    return {"M": {part: _encoded(name, fields[name]) for part, name in parts.items()}}


class _Writer:
    """The differences between PartiQL and expressions: names, values, and a few functions."""

    def name(self, path: str) -> str:
        raise LookupError(path)

    def value(self, value: Value) -> str:
        raise LookupError(value)

    def missing(self, path: str) -> str:
        raise LookupError(path)

    def attribute(self, name: str) -> str:
        """Return the path of the field *name* in its item."""
        return _path(name)

    def encoded(self, name: str, value: object) -> Value:
        """Return *value* of the field *name* as its item has it."""
        return _encoded(name, value)

    def condition(self, condition: Condition) -> str:
        match condition:
            case In():
                place = self.name(keys.QUEUE_STATE)
                return f"begins_with({place}, {self.value(_in(condition))})"
            case When(name, comparison, value, or_missing):
                path = self.name(self.attribute(name))
                if value is None:
                    return f"{'' if comparison == '=' else 'NOT '}{self.missing(path)}"
                wanted = self.value(self.encoded(name, value))
                match comparison:
                    case "size <=":
                        compared = f"size({path}) <= {wanted}"
                    case "begins with":
                        compared = f"begins_with({path}, {wanted})"
                    case "does not begin with":
                        compared = f"NOT begins_with({path}, {wanted})"
                    case _:
                        compared = f"{path} {comparison} {wanted}"
                return f"({self.missing(path)} OR {compared})" if or_missing else compared
            case _:
                assert_never(condition)

    def assignments(self, change: Change) -> list[str]:
        """Return all assignments of a SET clause: fields, counters, version, last move."""
        made = []
        whole = [attribute for attribute in MAPS if _whole(attribute, change.put)]
        for attribute in whole:
            value = self.value(_as_map(attribute, change.put))
            made.append(f"{self.name(attribute)} = {value}")
        inside = {name for attribute in whole for name in MAPS[attribute]}
        for name, value in change.put.items():
            if name in inside:
                continue
            path = self.name(_path(name))
            if isinstance(value, AfterLength):
                length = self.name(_path("lease_length"))
                made.append(f"{path} = {length} + {self.value(MICROS.encode(value.start))}")
            else:
                made.append(f"{path} = {self.value(_encoded(name, value))}")
        for name, number in (*change.add.items(), ("version", 1)):
            path, before = self.name(_path(name)), self.name(_path(name))
            made.append(f"{path} = {before} + {self.value({'N': str(number)})}")
        last_move = self.value({"S": str(change.rule.action)})
        made.append(f"{self.name(_path('last_move'))} = {last_move}")
        return made

    def removals(self, change: Change) -> list[str]:
        """Return all paths of a REMOVE clause; a map is removed as a whole."""
        whole = [attribute for attribute in MAPS if _whole(attribute, dict.fromkeys(change.clear))]
        inside = {name for attribute in whole for name in MAPS[attribute]}
        paths = [_path(name) for name in change.clear if name not in inside]
        return [self.name(path) for path in (*whole, *paths)]


@dataclass(slots=True)
class _PartiQL(_Writer):
    parameters: list[Value] = field(default_factory=list)

    def name(self, path: str) -> str:
        return ".".join(f'"{part}"' for part in path.split("."))

    def value(self, value: Value) -> str:
        self.parameters.append(value)
        return "?"

    def missing(self, path: str) -> str:
        return f"{path} IS MISSING"


@dataclass(slots=True)
class Expression(_Writer):
    """A condition or update expression, with the names and values in it."""

    aliases: dict[str, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def name(self, path: str) -> str:
        parts = path.split(".")
        return ".".join(self.aliases.setdefault(part, f"#a{len(self.aliases)}") for part in parts)

    def value(self, value: Value) -> str:
        key = f":v{len(self.values)}"
        self.values[key] = value
        return key

    def missing(self, path: str) -> str:
        return f"attribute_not_exists({path})"

    def names(self) -> dict[str, str]:
        return {alias: attribute for attribute, alias in self.aliases.items()}


def statement(change: Change, table: str) -> dict[str, Any]:
    """Return *change* as one entry of BatchExecuteStatement."""
    if change.insert is not None:
        item = to_item(change.insert)
        slots = ",".join(f"'{attribute}':?" for attribute in item)
        text = f'INSERT INTO "{table}" VALUE {{{slots}}}'
        return {"Statement": text, "Parameters": list(item.values())}

    writer = _PartiQL()
    if change.gone and not change.leaves_tombstone:
        head, which = f'DELETE FROM "{table}"', "OLD"  # noqa: S608  as above
    else:
        remove = "".join(f" REMOVE {path}" for path in writer.removals(change))
        head = f'UPDATE "{table}" SET {", ".join(writer.assignments(change))}{remove}'  # noqa: S608
        which = "OLD" if change.gone else "NEW"
    key = f'"{keys.TASK_ID}" = {writer.value({"S": change.task_id})}'
    where = " AND ".join((key, *map(writer.condition, change.when)))
    text = f"{head} WHERE {where} RETURNING ALL {which} *"
    return {"Statement": text, "Parameters": writer.parameters}


@dataclass(frozen=True, slots=True)
class SingleWrite:
    """One PutItem, UpdateItem or DeleteItem: the operation's name, and its arguments."""

    operation: str
    arguments: dict[str, Any]


def single_write(change: Change, table: str) -> SingleWrite:
    """Return *change* as one write with a condition expression."""
    writer = Expression()
    common: dict[str, Any] = {
        "TableName": table,
        "ReturnConsumedCapacity": "TOTAL",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if change.insert is not None:
        item: Item = to_item(change.insert)
        absent = f"attribute_not_exists({writer.name(keys.TASK_ID)})"
        return SingleWrite(
            "put_item",
            common
            | {
                "Item": item,
                "ConditionExpression": absent,
                "ExpressionAttributeNames": writer.names(),
            },
        )
    exists = f"attribute_exists({writer.name(keys.TASK_ID)})"
    common |= {"Key": {keys.TASK_ID: {"S": change.task_id}}}
    if change.gone and not change.leaves_tombstone:
        operation, returned = "delete_item", "ALL_OLD"
    else:
        operation, returned = "update_item", "ALL_OLD" if change.gone else "ALL_NEW"
        removals = writer.removals(change)
        remove = f" REMOVE {', '.join(removals)}" if removals else ""
        common["UpdateExpression"] = f"SET {', '.join(writer.assignments(change))}{remove}"
    common["ConditionExpression"] = " AND ".join((exists, *map(writer.condition, change.when)))
    common["ExpressionAttributeNames"] = writer.names()
    if writer.values:
        common["ExpressionAttributeValues"] = writer.values
    common["ReturnValues"] = returned
    return SingleWrite(operation, common)
