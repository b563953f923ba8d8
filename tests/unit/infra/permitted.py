"""What a function's code asks of DynamoDB, in the words of a policy; and what a policy allows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from headrace.local.tables import DynamoDBClient, TableNames
from infra.template import Template

_ALONE: Final = {
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
    "delete_item": "DeleteItem",
    "get_item": "GetItem",
    "put_item": "PutItem",
    "query": "Query",
    "scan": "Scan",
    "update_item": "UpdateItem",
}
_IN_TRANSACTIONS: Final = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}
_IN_STATEMENTS: Final = {
    "DELETE": "PartiQLDelete",
    "INSERT": "PartiQLInsert",
    "SELECT": "PartiQLSelect",
    "UPDATE": "PartiQLUpdate",
}


@dataclass(frozen=True, order=True)
class Use:
    """An action on a table, or on the index; *leading* is the partition key if it is known."""

    action: str
    resource: str
    leading: str = ""


class WatchedClient:
    """boto3's client, which notes what is asked of it."""

    def __init__(self, client: DynamoDBClient, tables: TableNames) -> None:
        self.seen: set[Use] = set()
        self.exceptions = client.exceptions
        calls = Calls(tables)
        for name in (*_ALONE, "transact_write_items", "batch_execute_statement"):
            setattr(self, name, partial(self.call, calls, name, getattr(client, name)))

    def call(self, calls: "Calls", name: str, call: Callable[..., Any], **arguments: Any) -> Any:
        """Note what the arguments ask for, and call the client."""
        self.seen |= set(calls.uses(name, arguments))
        return call(**arguments)


@dataclass(frozen=True)
class Calls:
    """Reads what a call of DynamoDB asks for."""

    tables: TableNames

    def uses(self, name: str, arguments: Mapping[str, Any]) -> Iterator[Use]:
        """What the call *name*, as boto3 names it, does with these arguments."""
        match name:
            case "transact_write_items":
                for item in arguments["TransactItems"]:
                    ((kind, write),) = item.items()
                    yield self._use(_IN_TRANSACTIONS[kind], write)
            case "batch_execute_statement":
                for text in (each["Statement"] for each in arguments["Statements"]):
                    kind = text.split(maxsplit=1)[0].upper()
                    yield Use(_IN_STATEMENTS[kind], self._table(re.findall(r'"([^"]+)"', text)[0]))
            case "batch_get_item":
                for table, asked in arguments["RequestItems"].items():
                    resource = self._table(table)
                    keyed = [one["pk"]["S"] for one in asked["Keys"] if resource == "control"]
                    for leading in keyed or [""]:
                        yield Use(_ALONE[name], resource, leading)
            case "batch_write_item":
                yield from self._written(arguments["RequestItems"])
            case _:
                yield self._use(_ALONE[name], arguments)

    def _written(self, writes: Mapping[str, Any]) -> Iterator[Use]:
        for table, requests in writes.items():
            for request in requests:
                ((_, write),) = request.items()
                key = write.get("Item") or write["Key"]
                yield Use("BatchWriteItem", self._table(table), key["pk"]["S"])

    def _use(self, action: str, arguments: Mapping[str, Any]) -> Use:
        if "IndexName" in arguments:
            return Use(action, "index")
        resource = self._table(arguments["TableName"])
        if resource == "tasks":
            return Use(action, resource)
        key = arguments.get("Key") or arguments.get("Item")
        if key is None:
            (key,) = [
                {"pk": value}
                for name, value in arguments["ExpressionAttributeValues"].items()
                if re.search(rf"(?:pk|#pk|#kind) = {name}\b", arguments["KeyConditionExpression"])
            ] or [{"pk": {"S": "?"}}]
        return Use(action, resource, key["pk"]["S"])

    def _table(self, name: str) -> str:
        return {self.tables.tasks: "tasks", self.tables.control: "control"}[name]


_RESOURCES: Final = {
    "TasksTable.Arn": "tasks",
    "${TasksTable.Arn}/index/by_state": "index",
    "ControlTable.Arn": "control",
}


@dataclass(frozen=True)
class Allowed:
    """What one statement of a policy allows on one of our tables."""

    actions: frozenset[str]
    resource: str
    leading: tuple[str, ...] = ("*",)

    def covers(self, use: Use) -> bool:
        return (
            use.action in self.actions
            and use.resource == self.resource
            and any(fnmatchcase(use.leading, pattern) for pattern in self.leading)
        )


def allowed(template: Template, function: str) -> list[Allowed]:
    """The actions that the policies of *function* allow on the tables and the index."""
    return allowed_by(template["Resources"][function]["Properties"]["Policies"])


def allowed_by(policies: Iterable[Mapping[str, Any]]) -> list[Allowed]:
    """The actions that *policies* allow on the tables and the index."""
    found = []
    for policy in policies:
        for statement in policy["Statement"]:
            resource = next(iter(statement.get("Resource", {"": ""}).values()))
            if resource not in _RESOURCES:
                continue
            condition: Mapping[str, Any] = next(
                (
                    of
                    for operator, of in statement.get("Condition", {}).items()
                    if operator.startswith("ForAllValues:")
                ),
                {},
            )
            names = frozenset(name.removeprefix("dynamodb:") for name in statement["Action"])
            leading = tuple(condition.get("dynamodb:LeadingKeys", ("*",)))
            found.append(Allowed(names, _RESOURCES[resource], leading))
    return found
