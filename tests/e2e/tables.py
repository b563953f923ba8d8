"""The emulator's tables on AWS's own engine: DynamoDB Local answers every call about items.

The emulator keeps what CloudFormation says of a table, judges what a caller may do, and feeds the
functions that read a stream; the items, statements and conditions are DynamoDB Local's.  A table is
created there when it is first called.  After each write its stream there is read on, and what it
holds is put into the emulator's stream: the images are AWS's.

Runs in .venv-e2e, within tests/e2e/emulator.py.
"""

# ruff: noqa: SLF001  the emulator offers no other place to add these
import asyncio
import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from ministack.services import dynamodb

_WRITES: Final = frozenset(
    {
        "BatchExecuteStatement",
        "BatchWriteItem",
        "DeleteItem",
        "ExecuteStatement",
        "ExecuteTransaction",
        "PutItem",
        "TransactWriteItems",
        "UpdateItem",
    }
)
_READS: Final = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})
_TABLES: Final = "DynamoDB_20120810"
_STREAMS: Final = "DynamoDBStreams_20120810"
_SECONDS: Final = 30.0
# It wants to see some credentials, and takes any.
_HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request,"
        " SignedHeaders=host, Signature=0"
    ),
}

Answer = dict[str, Any]


class Refused(RuntimeError):
    """DynamoDB Local refuses a call of ours."""


@dataclass
class _Stream:
    """How far a table's stream was read: by shard, where to go on and what was read last."""

    table: str
    arn: str
    open: list[str] = field(default_factory=list)
    at: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)


class Tables:
    """Calls about items, carried out by the DynamoDB Local at *url*."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._made: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._emulators = dynamodb.handle_request

    async def handle_request(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: Answer
    ) -> tuple[int, dict[str, str], str | bytes]:
        """Answer one request, in place of the emulator's function of this name."""
        action = headers.get("x-amz-target", "").rpartition(".")[2]
        if action not in _WRITES | _READS:
            answer: tuple[int, dict[str, str], str | bytes] = await self._emulators(
                method, path, headers, body, query
            )
            return answer
        return await asyncio.to_thread(self._forward, action, body)

    def _forward(self, action: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            for name in sorted(set(dynamodb._tables) - self._made):
                self._create(name)
        status, answer = self._post(f"{_TABLES}.{action}", body)
        if action in _WRITES:
            with self._lock:
                for stream in self._streams.values():
                    self._read_on(stream)
        return status, {"Content-Type": "application/x-amz-json-1.0"}, answer

    def _create(self, name: str) -> None:
        described = dynamodb._table_description(name)
        request = {
            "TableName": name,
            "KeySchema": described["KeySchema"],
            "AttributeDefinitions": described["AttributeDefinitions"],
            "BillingMode": "PAY_PER_REQUEST",
        }
        if indexes := described.get("GlobalSecondaryIndexes"):
            kept = ("IndexName", "KeySchema", "Projection")
            request["GlobalSecondaryIndexes"] = [{k: one[k] for k in kept} for one in indexes]
        if stream := described.get("StreamSpecification"):
            request["StreamSpecification"] = stream
        made = self._ask(f"{_TABLES}.CreateTable", request)["TableDescription"]
        self._made.add(name)
        if arn := made.get("LatestStreamArn"):
            self._streams[name] = _Stream(name, arn)

    def _read_on(self, stream: "_Stream") -> None:
        """Put what was written since the last time into the emulator's stream."""
        requested = {"StreamArn": stream.arn}
        if not stream.open:
            described = self._ask(f"{_STREAMS}.DescribeStream", requested)["StreamDescription"]
            ids = [shard["ShardId"] for shard in described["Shards"]]
            stream.open = [shard for shard in ids if shard not in stream.ended]
        for shard in list(stream.open):
            at: str | None = stream.at.get(shard) or self._iterator(stream, shard)
            while at is not None:
                try:
                    page = self._ask(f"{_STREAMS}.GetRecords", {"ShardIterator": at})
                except Refused as refused:
                    # An iterator of a shard that was empty for long is no longer one.
                    if "TrimmedData" not in str(refused):
                        raise
                    at = self._iterator(stream, shard)
                    continue
                for record in page["Records"]:
                    change = record["dynamodb"]
                    stream.read[shard] = change["SequenceNumber"]
                    images = change.get("OldImage"), change.get("NewImage")
                    dynamodb._emit_stream_event(stream.table, record["eventName"], *images)
                at = page.get("NextShardIterator")
                if not page["Records"]:
                    break
            if at is None:
                stream.open.remove(shard)
                stream.ended.add(shard)
            else:
                stream.at[shard] = at

    def _iterator(self, stream: "_Stream", shard: str) -> str:
        requested = {"StreamArn": stream.arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        if shard in stream.read:
            requested["ShardIteratorType"] = "AFTER_SEQUENCE_NUMBER"
            requested["SequenceNumber"] = stream.read[shard]
        found: str = self._ask(f"{_STREAMS}.GetShardIterator", requested)["ShardIterator"]
        return found

    def _ask(self, target: str, request: Answer) -> Answer:
        status, answer = self._post(target, json.dumps(request).encode())
        if status != 200:
            message = f"DynamoDB Local refuses {target}: {answer.decode()}"
            raise Refused(message)
        reported: Answer = json.loads(answer)
        return reported

    def _post(self, target: str, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(  # noqa: S310  the engine's own address
            self._url, data=body, headers={**_HEADERS, "X-Amz-Target": target}
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310  likewise
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()
