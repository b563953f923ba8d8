"""The part of template.yaml that the local service reads: tables and API routes.

The template is the only place where they are defined; from it come the `create_table` requests,
so that every endpoint and every test has the tables that are deployed.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, TypeAlias

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from headrace.local import EndpointRefused, TemplateInvalid

# boto3 makes its clients at run time, so there is no class to name.
DynamoDBClient: TypeAlias = Any
Template: TypeAlias = dict[str, Any]

_KEPT_PROPERTIES: Final = (
    "AttributeDefinitions",
    "KeySchema",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
    "BillingMode",
)
_CREATE_TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class TableNames:
    """What the two tables are called."""

    tasks: str = "headrace-tasks"
    control: str = "headrace-control"


@dataclass(frozen=True, slots=True)
class Function:
    """A Lambda function: its `name` in the template, its `handler` as in `api.handler`."""

    name: str
    handler: str
    timeout_seconds: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One API event: `method` in capitals or ANY, `path` as in `/v1/queues/{queue}`."""

    method: str
    path: str
    function: Function


def load_template() -> Template:
    """Read what the package has of template.yaml, which may not be there: see `infra.template`."""
    part = resources.files("headrace.local").joinpath("template.json")
    template: Template = json.loads(part.read_text(encoding="utf-8"))
    return template


def table_request(template: Template, resource: str, name: str) -> dict[str, Any]:
    """Build the `create_table` request for a table resource, under the name given.

    Raises:
        TemplateInvalid: the template has no such table.

    """
    properties = _table_properties(template, resource)
    request: dict[str, Any] = {
        key: new_index(properties[key]) for key in _KEPT_PROPERTIES if key in properties
    }
    request["TableName"] = name
    if stream := properties.get("StreamSpecification"):
        request["StreamSpecification"] = {
            "StreamEnabled": True,
            "StreamViewType": stream["StreamViewType"],
        }
    return request


def new_index(value: object) -> object:
    """Return a part of the template as new tables have it, whose index is whole."""
    if isinstance(value, list):
        return [new_index(one) for one in value]
    if not isinstance(value, dict):
        return value
    match value.get("Fn::If"):
        case ["OldIndex", _, new]:
            return new
    return {name: new_index(one) for name, one in value.items()}


def create_tables(client: DynamoDBClient, template: Template, names: TableNames) -> None:
    """Create those of the two tables that are missing, and wait until both can be used.

    Raises:
        TemplateInvalid: the template lacks a table.
        EndpointRefused: the endpoint does not answer, or refuses.

    """
    try:
        for resource, name in (("TasksTable", names.tasks), ("ControlTable", names.control)):
            _create_table(client, template, resource, name)
    except (BotoCoreError, ClientError) as error:
        url = client.meta.endpoint_url
        why = " ".join(str(error).split())
        if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
            why = "nothing answers there; check whether it is started, and HEADRACE_DYNAMODB_URL"
        raise EndpointRefused(f"The tables cannot be set up at {url}: {why}") from error


def routes(template: Template) -> list[ApiRoute]:
    """List the API events of all functions, in the template's order.

    Raises:
        TemplateInvalid: an event lacks its path or its function a handler.

    """
    return [
        ApiRoute(event["Method"].upper(), event["Path"], function)
        for function, kind, event in _events(template)
        if kind == "Api"
    ]


def _table_properties(template: Template, resource: str) -> dict[str, Any]:
    found = template["Resources"].get(resource, {})
    if found.get("Type") != "AWS::DynamoDB::Table":
        raise TemplateInvalid(f"template.yaml has no table {resource}.")
    properties: dict[str, Any] = found["Properties"]
    return properties


def _create_table(client: DynamoDBClient, template: Template, resource: str, name: str) -> None:
    try:
        status = client.describe_table(TableName=name)["Table"]["TableStatus"]
    except client.exceptions.ResourceNotFoundException:
        status = None
    if status is None:
        # Another process may just have made it.
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            client.create_table(**table_request(template, resource, name))
    if status != "ACTIVE":
        _wait_until_active(client, name)
    ttl = _table_properties(template, resource).get("TimeToLiveSpecification")
    if ttl is None:
        return
    # Looked at even when the table was there: the last start may have ended before this call.
    answer = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    if answer.get("TimeToLiveStatus") not in {"ENABLED", "ENABLING"}:
        try:
            client.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
        except ClientError as error:
            # Another service that starts on the same tables was faster.
            if "already enabled" not in str(error):
                raise


def _wait_until_active(client: DynamoDBClient, name: str) -> None:
    deadline = time.monotonic() + _CREATE_TIMEOUT_SECONDS
    pause = 0.0
    while client.describe_table(TableName=name)["Table"]["TableStatus"] != "ACTIVE":
        if time.monotonic() > deadline:
            raise EndpointRefused(
                f"The table {name} is not ready after {_CREATE_TIMEOUT_SECONDS:g} seconds."
            )
        # boto3's own waiter looks every 20 seconds; DynamoDB Local is ready at once.
        pause = min(2.0, pause * 2 or 0.01)
        time.sleep(pause)


def _events(template: Template) -> Iterator[tuple[Function, str, dict[str, Any]]]:
    """Yield (function, type of the event, its properties) of every event of every function."""
    shared = template.get("Globals", {}).get("Function", {})
    for name, resource in template["Resources"].items():
        if resource.get("Type") != "AWS::Serverless::Function":
            continue
        properties = {**shared, **resource["Properties"]}
        if not isinstance(properties.get("Handler"), str):
            raise TemplateInvalid(f"The function {name} in template.yaml has no handler.")
        # Lambda's own defaults.
        timeout, memory = properties.get("Timeout", 3), properties.get("MemorySize", 128)
        function = Function(name, properties["Handler"], timeout, memory)
        for event in properties.get("Events", {}).values():
            yield function, event["Type"], event.get("Properties", {})
