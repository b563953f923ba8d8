"""An account of AWS for tests: one stack, its tables on a real engine, and policies that hold.

Calls of DynamoDB go on to the engine, after it was noted what they ask for, and refused as IAM does
where the policy in force does not allow it.  CloudFormation knows how to describe the one stack.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

import urllib3

from headrace.local.tables import TableNames
from tests.engine import AUTHORIZATION
from tests.unit.infra.permitted import Allowed, Calls, Use

REGION: Final = "eu-west-1"
STACK: Final = "headrace-prod"
URL: Final = f"dynamodb://{REGION}/{STACK}"
USER: Final = "arn:aws:iam::111122223333:user/ada"

_STACK: Final = """<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<DescribeStacksResult><Stacks><member><StackName>{name}</StackName>
<CreationTime>2026-11-21T08:00:00Z</CreationTime><StackStatus>{status}</StackStatus>
<Outputs>{outputs}</Outputs><Parameters>{parameters}</Parameters>
</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"""
_ERROR: Final = """<ErrorResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"""
_REFUSED: Final = 400


@dataclass
class Account:
    """What there is, what was asked for (``seen``), and how often (``calls``, by operation).

    ``policy`` None allows everything; ``stack_readable`` is whether the caller may describe it.
    """

    engine: str
    tables: TableNames
    url: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    policy: Sequence[Allowed] | None = None
    stack_readable: bool = True
    seen: set[Use] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    regions: set[str] = field(default_factory=set)
    _pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(maxsize=32, retries=False)
    )

    def __post_init__(self) -> None:
        self.outputs = {
            "TasksTableName": self.tables.tasks,
            "ControlTableName": self.tables.control,
            **self.outputs,
        }

    def describe(self, stack: str) -> tuple[int, str]:
        """Answer DescribeStacks."""
        self.calls["DescribeStacks"] += 1
        if not self.stack_readable:
            reason = f"User: {USER} is not authorized to perform: cloudformation:DescribeStacks"
            return 403, _ERROR.format(code="AccessDenied", message=reason)
        if stack != STACK:
            reason = f"Stack with id {stack} does not exist"
            return _REFUSED, _ERROR.format(code="ValidationError", message=reason)
        return 200, _STACK.format(
            name=stack,
            status="UPDATE_COMPLETE",
            outputs=_members("Output", self.outputs),
            parameters=_members("Parameter", self.parameters),
        )

    def call(self, operation: str, body: bytes) -> tuple[int, bytes]:
        """Answer a call of DynamoDB."""
        self.calls[operation] += 1
        arguments = json.loads(body)
        uses = set(Calls(self.tables).uses(_snake(operation), arguments))
        self.seen |= uses
        refused = [use for use in sorted(uses) if not self._may(use)]
        if refused:
            action = refused[0].action
            reason = f"User: {USER} is not authorized to perform: dynamodb:{action}"
            if "Statements" in arguments:  # each has an answer of its own
                error = {"Error": {"Code": "AccessDenied", "Message": reason}}
                return 200, json.dumps(
                    {"Responses": [error for _ in arguments["Statements"]]}
                ).encode()
            kind = "com.amazon.coral.service#AccessDeniedException"
            return _REFUSED, json.dumps({"__type": kind, "Message": reason}).encode()
        answer = self._pool.request(
            "POST",
            self.engine,
            body=body,
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"DynamoDB_20120810.{operation}",
                "Authorization": AUTHORIZATION,
            },
        )
        return answer.status, answer.data

    def _may(self, use: Use) -> bool:
        return self.policy is None or any(each.covers(use) for each in self.policy)


def _members(kind: str, values: dict[str, str]) -> str:
    return "".join(
        f"<member><{kind}Key>{name}</{kind}Key><{kind}Value>{value}</{kind}Value></member>"
        for name, value in values.items()
    )


def _snake(operation: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", operation).lower()


@contextmanager
def account(engine: str, tables: TableNames) -> Iterator[Account]:
    """Serve an account over *tables* of the DynamoDB at *engine*, in a with block."""
    made = Account(engine, tables)

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or an answer's body waits 40 ms behind its head

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signed = re.search(r"Credential=[^/]+/\d+/([^/]+)/", self.headers["Authorization"])
            made.regions.add(signed[1] if signed else "")
            target = self.headers.get("X-Amz-Target")
            if target is None:
                status, text = made.describe(parse_qs(body.decode())["StackName"][0])
                self._answer(status, "text/xml", text.encode())
            else:
                status, found = made.call(target.rpartition(".")[2], body)
                self._answer(status, "application/x-amz-json-1.0", found)

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Door) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
