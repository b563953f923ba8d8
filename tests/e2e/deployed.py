"""A deployed Headrace, for the tests that know the service only by what it answers.

The environment says where it is: HEADRACE_URL and HEADRACE_KEY, the names of its tables as the
functions have them, and what AWS's clients read.  Then the fixtures of tests/functional and
tests/console call it instead of the handlers in their own process; see tests/e2e/selection.py for
the tests that can.
"""

import base64
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any, TypeAlias
from urllib.parse import urlencode

import boto3
import urllib3

from headrace.runtime.wiring import Settings, UseCases, build, dynamo_store, utc_now
from tests.manual_clock import ManualClock

Handler: TypeAlias = Callable[[dict[str, Any], Any], dict[str, Any]]
"""What answers an event; its second argument is Lambda's context."""

_TABLES = ("HEADRACE_TASKS_TABLE", "HEADRACE_CONTROL_TABLE")


class RealClock(ManualClock):
    """The time as it is; what a test puts forward by a moment passes."""

    def __call__(self) -> datetime:
        return utc_now()

    def forward(self, seconds: float | timedelta) -> None:
        assert isinstance(seconds, float), (
            "a test that holds the clock cannot run here: see selection.py"
        )
        time.sleep(seconds)


@dataclass(frozen=True)
class Deployed:
    """Where it is; *host* is what it is called, where its address does not say it."""

    url: str
    key: str
    host: str | None = None

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        return urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(60))

    @cached_property
    def use(self) -> UseCases:
        """The use cases over its tables, in this process, for what a test arranges."""
        own = {"HEADRACE_ADMIN_KEY": self.key, "HEADRACE_SETTINGS_TTL_SECONDS": "0"}
        settings = Settings.from_env({**os.environ, **own})
        return build(settings, dynamo_store(settings))

    def handler(self, event: Mapping[str, Any], _context: object) -> dict[str, Any]:
        """Answer API Gateway's *event* as a Lambda function does: by asking the deployed one."""
        query = urlencode(event["multiValueQueryStringParameters"] or {}, doseq=True)
        headers = {name: ",".join(values) for name, values in event["multiValueHeaders"].items()}
        body = event["body"]
        if body is not None:
            body = base64.b64decode(body) if event["isBase64Encoded"] else body.encode()
        answer = self._pool.request(
            event["httpMethod"],
            self.url + event["path"] + (f"?{query}" if query else ""),
            headers={
                "X-Forwarded-For": event["requestContext"]["identity"]["sourceIp"],
                **headers,
                **({"Host": self.host} if self.host else {}),
            },
            body=body,
            redirect=False,
        )
        found = {name.title(): answer.headers.getlist(name) for name in answer.headers}
        return {
            "statusCode": answer.status,
            "headers": {name: values[0] for name, values in found.items()},
            "multiValueHeaders": found,
            "body": answer.data.decode("utf-8", "surrogateescape"),
        }

    def wipe(self) -> None:
        """Remove every item of its tables, so that the next test finds nothing."""
        client = boto3.client("dynamodb")
        for name in _TABLES:
            table = os.environ[name]
            keys = [each["AttributeName"] for each in _schema(client, table)]
            scanned = client.get_paginator("scan").paginate(
                TableName=table,
                ConsistentRead=True,
                ProjectionExpression=",".join(f"#{key}" for key in keys),
                ExpressionAttributeNames={f"#{key}": key for key in keys},
            )
            found = [{"DeleteRequest": {"Key": key}} for page in scanned for key in page["Items"]]
            for first in range(0, len(found), 25):
                deleted = client.batch_write_item(RequestItems={table: found[first : first + 25]})
                assert not deleted["UnprocessedItems"]


def _schema(client: Any, table: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = client.describe_table(TableName=table)["Table"]["KeySchema"]
    return found


@cache
def deployed() -> Deployed | None:
    """Return the deployment that the environment names, None if it names none."""
    if "HEADRACE_URL" not in os.environ:
        return None
    host = os.environ.get("HEADRACE_HOST")
    return Deployed(os.environ["HEADRACE_URL"], os.environ["HEADRACE_KEY"], host)
