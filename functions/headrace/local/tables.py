"""The two tables of an endpoint of DynamoDB, as template.yaml has them.

`make local-template` writes the requests for them into the package.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, TypeAlias

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from headrace.local import EndpointRefused

DynamoDBClient: TypeAlias = Any
"""botocore makes its clients at run time, so there is no class to name."""

TableRequest: TypeAlias = dict[str, dict[str, Any]]

_EVERY_SECOND: Final = {"Delay": 1, "MaxAttempts": 60}


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names of the two tables."""

    tasks: str = "headrace-tasks"
    control: str = "headrace-control"


def table_requests() -> dict[str, TableRequest]:
    """Return the requests for each table of the template: `create`, and `ttl` if it has one."""
    part = resources.files("headrace.local").joinpath("tables.json")
    found: dict[str, TableRequest] = json.loads(part.read_text(encoding="utf-8"))
    return found


def create_tables(
    client: DynamoDBClient, requests: Mapping[str, TableRequest], names: TableNames
) -> None:
    """Create those of the two tables that are missing, and wait until both can be used.

    Raises EndpointRefused if the endpoint does not answer, or refuses.
    """
    try:
        _create_table(client, names.tasks, requests["TasksTable"])
        _create_table(client, names.control, requests["ControlTable"])
    except (BotoCoreError, ClientError) as error:
        url = client.meta.endpoint_url
        why = " ".join(str(error).split())
        if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
            why = "nothing answers there; check whether it is started, and HEADRACE_DYNAMODB_URL"
        raise EndpointRefused(f"The tables cannot be set up at {url}: {why}") from error


def _create_table(client: DynamoDBClient, name: str, request: TableRequest) -> None:
    try:
        client.describe_table(TableName=name)
    except client.exceptions.ResourceNotFoundException:
        # Another process may just have created it.
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            client.create_table(TableName=name, **request["create"])
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig=_EVERY_SECOND)
    if "ttl" not in request:
        return
    # Also if the table exists: an earlier start may have ended before this call.
    answer = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    if answer.get("TimeToLiveStatus") not in {"ENABLED", "ENABLING"}:
        try:
            client.update_time_to_live(TableName=name, TimeToLiveSpecification=request["ttl"])
        except ClientError as error:
            # Another service that starts on the same tables was faster.
            if "already enabled" not in str(error):
                raise
