"""The control table: every write of a control item is one patch."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from headrace.domain.change import Change, KeyLock
from headrace.domain.errors import Unavailable
from headrace.domain.patch import ControlItem, Copy, Fields, Patch, Patched
from headrace.domain.patch import Value as FieldValue
from headrace.store import keys
from headrace.store.call_scope import charge
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.dynamo.statements import Expression, single_write
from headrace.store.items import Item, Value
from headrace.store.services import AwsClient

_READ_BATCH: Final = 100  # items of one BatchGetItem
_READ_TRIES: Final = 6
_RETURNED: Final = {"Put": "NONE", "Update": "ALL_NEW", "Delete": "ALL_OLD"}


class ControlTable:
    """Implements the control items of ``headrace.store.base.Store``."""

    def __init__(self, client: AwsClient, table: str, tasks: str) -> None:
        self._client = client
        self._control = table
        self._tasks = tasks

    def item(self, kind: str, name: str, *, consistent: bool = True) -> Fields | None:
        with aws_errors():
            answer = self._client.get_item(
                TableName=self._control,
                Key=control_key(kind, name),
                ConsistentRead=consistent,
                ReturnConsumedCapacity="TOTAL",
            )
        charge_all(answer, write=False)
        return _fields(answer.get("Item"))

    def items_by_key(self, wanted: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], Fields]:
        names = list(dict.fromkeys(wanted))
        found: dict[tuple[str, str], Fields] = {}
        for start in range(0, len(names), _READ_BATCH):
            for item in self._read_items(names[start : start + _READ_BATCH]):
                found[item[keys.PK]["S"], item[keys.SK]["S"]] = _fields(item) or {}
        return found

    def _read_items(self, names: Sequence[tuple[str, str]]) -> Iterator[Item]:
        request = {"Keys": [control_key(*name) for name in names], "ConsistentRead": True}
        pending: dict[str, Any] = {self._control: request}
        for _ in range(_READ_TRIES):
            with aws_errors():
                answer = self._client.batch_get_item(
                    RequestItems=pending, ReturnConsumedCapacity="TOTAL"
                )
            charge_all(answer, write=False)
            yield from answer["Responses"].get(self._control, ())
            pending = answer.get("UnprocessedKeys") or {}
            if not pending:
                return
        raise Unavailable("the table is throttled; not every control item could be read")

    def items_of_kind(
        self,
        kind: str,
        *,
        first: str = "",
        last: str = "",
        after: str = "",
        limit: int | None = None,
        consistent: bool = True,
    ) -> tuple[Sequence[ControlItem], bool]:
        names, values = {"#pk": keys.PK}, {":kind": {"S": kind}}
        condition = "#pk = :kind"
        if last:
            condition += " AND #sk BETWEEN :first AND :last"
            names["#sk"] = keys.SK
            values |= {":first": {"S": first}, ":last": {"S": last}}
        query: dict[str, Any] = {
            "TableName": self._control,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ConsistentRead": consistent,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if limit is not None:
            query["Limit"] = limit
        if after:
            query["ExclusiveStartKey"] = control_key(kind, after)
        found: list[ControlItem] = []
        while True:
            with aws_errors():
                answer = self._client.query(**query)
            charge_all(answer, write=False)
            found += [
                ControlItem(kind, item[keys.SK]["S"], _fields(item) or {})
                for item in answer["Items"]
            ]
            position = answer.get("LastEvaluatedKey")
            if position is None or limit is not None:
                return found, position is not None
            query["ExclusiveStartKey"] = position

    def patch(self, patch: Patch, *, lazy: bool = False) -> Patched:  # noqa: ARG002  every write lasts
        ((operation, arguments),) = patch_write(patch, self._control).items()
        write = getattr(self._client, f"{operation.lower()}_item")
        with aws_errors():
            try:
                answer = write(
                    **arguments,
                    ReturnValues=_RETURNED[operation],
                    ReturnConsumedCapacity="TOTAL",
                )
            except self._client.exceptions.ConditionalCheckFailedException as error:
                charge(write=1.0)
                found = _fields(error.response.get("Item"))
                return Patched(patch.is_applied(found), found)
        charge_all(answer, write=True)
        fields = _fields(answer.get("Attributes"))
        return Patched(made=True, fields=patch.new_fields() if patch.mode == "replace" else fields)

    def patch_all(self, patches: Sequence[Patch], *, tasks: Sequence[Change] = ()) -> bool:
        items = [patch_write(patch, self._control) for patch in patches]
        items += [_task_write(new, self._tasks) for new in tasks]
        with aws_errors():
            try:
                answer = self._client.transact_write_items(
                    TransactItems=items, ReturnConsumedCapacity="TOTAL"
                )
            except self._client.exceptions.TransactionCanceledException as error:
                charge(write=2.0 * len(items))
                reasons = error.response["CancellationReasons"]
                if all(
                    patch.is_applied(_fields(reason.get("Item")))
                    for patch, reason in zip(patches, reasons, strict=False)
                ):
                    return True
                if any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                    return False
                raise  # others are writing the same items, or the table is throttled
        charge_all(answer, write=True)
        return True


def control_key(kind: str, name: str) -> Item:
    """Return the key of a control item."""
    return {keys.PK: {"S": kind}, keys.SK: {"S": name}}


def patch_write(patch: Patch, table: str) -> dict[str, dict[str, Any]]:
    """Return the write of *patch*, under the name of its operation in a transaction."""
    writer, key = _PatchExpression(), control_key(patch.kind, patch.name)
    arguments: dict[str, Any] = {"TableName": table}
    match patch.mode:
        case "replace":
            operation = "Put"
            fields = {name: _encoded(value) for name, value in patch.new_fields().items()}
            arguments["Item"] = {**key, **fields}
        case "delete":
            operation, arguments["Key"] = "Delete", key
        case _:
            operation, arguments["Key"] = "Update", key
            arguments["UpdateExpression"] = writer.update(patch)
    if patch.when:
        arguments["ConditionExpression"] = " AND ".join(map(writer.condition, patch.when))
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if writer.aliases:
        arguments["ExpressionAttributeNames"] = writer.names()
    if writer.values:
        arguments["ExpressionAttributeValues"] = writer.values
    return {operation: arguments}


class _PatchExpression(Expression):
    """An expression about the fields of a control item."""

    def attribute(self, name: str) -> str:
        return name

    def encoded(self, name: str, value: object) -> Value:  # noqa: ARG002  a value says its type
        return _encoded(cast("FieldValue", value))

    def update(self, patch: Patch) -> str:
        """Return the update expression of *patch*."""
        clauses = {
            "SET": [
                f"{self.name(name)} = {self._put(value)}"
                for name, value in patch.put.items()
                if value is not None
            ],
            "REMOVE": [self.name(name) for name, value in patch.put.items() if value is None],
            "ADD": [f"{self.name(n)} {self.value(_encoded(v))}" for n, v in patch.add.items()],
            "DELETE": [
                f"{self.name(n)} {self.value(_encoded(v))}" for n, v in patch.discard.items()
            ],
        }
        return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts)

    def _put(self, value: FieldValue | Copy) -> str:
        if not isinstance(value, Copy):
            return self.value(_encoded(value))
        copied = self.name(value.name)
        if value.default is not None:
            copied = f"if_not_exists({copied}, {self.value(_encoded(value.default))})"
        return f"{copied} + {self.value(_encoded(value.plus))}" if value.plus else copied


def _encoded(value: FieldValue) -> Value:
    match value:
        case int():
            return {"N": str(value)}
        case str():
            return {"S": str(value)}
    return {"SS": sorted(value)}


def _fields(item: Item | None) -> Fields | None:
    if item is None:
        return None
    return {name: _decoded(value) for name, value in item.items() if name not in (keys.PK, keys.SK)}


def _decoded(value: Value) -> FieldValue:
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content)
        case "SS":
            return frozenset(content)
    return cast("str", content)


_OPERATIONS = {"put_item": "Put", "update_item": "Update", "delete_item": "Delete"}
_ARGUMENTS = frozenset(
    {
        "TableName",
        "Key",
        "Item",
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)


def transaction(change: Change, tasks: str, control: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the items of TransactWriteItems, and for each but the first its place in ``also``."""
    items, places = [_task_write(change, tasks)], []
    for place, also in enumerate(change.also):
        for part in _flat(also):
            write = (
                patch_write(part.patch(), control)
                if isinstance(part, KeyLock)
                else _task_write(part, tasks)
            )
            items.append(write)
            places.append(place)
    return items, places


def _flat(also: KeyLock | Change) -> list[KeyLock | Change]:
    if isinstance(also, KeyLock):
        return [also]
    return [also, *(part for inner in also.also for part in _flat(inner))]


def _task_write(change: Change, table: str) -> dict[str, Any]:
    write = single_write(change, table)
    arguments = {name: write.arguments[name] for name in _ARGUMENTS & write.arguments.keys()}
    return {_OPERATIONS[write.operation]: arguments}
