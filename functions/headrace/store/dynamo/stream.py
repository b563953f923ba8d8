"""The stream of the tasks table: its records as writes of tasks, and a reader of its shards.

A record has the item's images before and after a write, in DynamoDB's own JSON.  ``TableStream``
reads the stream as Lambda's event source mapping does in a deployment.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from botocore.exceptions import ClientError

from headrace.domain.errors import Unavailable
from headrace.domain.transitions import TaskWrite
from headrace.store.dynamo.connect import aws_errors
from headrace.store.items import from_item
from headrace.store.services import AwsClient, client_of

StreamRecord: TypeAlias = Mapping[str, Any]
"""A record as Lambda delivers it: ``{"eventName": …, "dynamodb": {"NewImage": …, …}, …}``."""

_TTL_SERVICE: Final = "dynamodb.amazonaws.com"
"""The principal by which DynamoDB removes items that are past their retention."""
_MICROS: Final = 1_000_000


class StreamBatch(NamedTuple):
    """The writes of a batch, and for each record that could not be read the reason."""

    writes: list[TaskWrite]
    unreadable: list[str]


def writes_of(records: Iterable[StreamRecord]) -> StreamBatch:
    """Return the writes that *records* of one shard of the stream show, in order."""
    batch = StreamBatch([], [])
    for record in records:
        try:
            batch.writes.append(_write(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"not a record of the stream: {type(error).__name__}: {error}"
            batch.unreadable.append(reason)
    return batch


def _write(record: StreamRecord) -> TaskWrite:
    change = record["dynamodb"]
    old, new = change.get("OldImage"), change.get("NewImage")
    identity = record.get("userIdentity")
    principal = identity.get("principalId") if isinstance(identity, Mapping) else None
    return TaskWrite(
        int(change["SequenceNumber"]),
        int(float(change["ApproximateCreationDateTime"]) * _MICROS),
        None if old is None else from_item(old),
        None if new is None else from_item(new),
        principal == _TTL_SERVICE,
    )


_ITERATOR_UNUSABLE: Final = frozenset({"ExpiredIteratorException", "TrimmedDataAccessException"})


@dataclass(frozen=True, slots=True)
class StreamShard:
    """A shard of the stream, and the shard that must be read to its end before this one."""

    id: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Records of a shard in order, as Lambda delivers them.

    ``iterator`` reads the next page. None means that the shard has ended.
    """

    records: Sequence[StreamRecord]
    iterator: str | None


class IteratorUnusable(Exception):
    """The iterator is older than 15 minutes, or its records were removed: begin the shard again."""


class TableStream:
    """The stream of the table *table* at the endpoint *url*, or at AWS."""

    def __init__(self, url: str | None, table: str) -> None:
        self._table = table
        self._tables: AwsClient = client_of("dynamodb", url=url)
        # AWS serves streams at another host. DynamoDB Local has one address for both.
        streams = url and url.replace("//dynamodb.", "//streams.dynamodb.")
        self._streams: AwsClient = client_of("dynamodbstreams", url=streams)
        self._arn = ""

    def shards(self) -> list[StreamShard]:
        """Return all shards of the last 24 hours.  Raises Unavailable."""
        found: list[StreamShard] = []
        more: dict[str, str] = {}
        while True:
            with aws_errors():
                answer = self._streams.describe_stream(StreamArn=self._stream_arn(), **more)
            description = answer["StreamDescription"]
            found += [
                StreamShard(shard["ShardId"], shard.get("ParentShardId"))
                for shard in description["Shards"]
            ]
            last = description.get("LastEvaluatedShardId")
            if last is None:
                return found
            more = {"ExclusiveStartShardId": last}

    def iterator(self, shard: str, *, after: int | None) -> str:
        """Return an iterator that begins after the sequence number *after*, or at the start.

        Raises Unavailable. Raises IteratorUnusable if the record at *after* was removed.
        """
        start: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
        if after is not None:
            # DynamoDB pads sequence numbers to 21 digits, and compares them as text.
            start = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "SequenceNumber": str(after).zfill(21),
            }
        answer = self._call(
            "get_shard_iterator", StreamArn=self._stream_arn(), ShardId=shard, **start
        )
        return str(answer["ShardIterator"])

    def read(self, iterator: str, limit: int) -> StreamPage:
        """Return up to *limit* records.  Raises Unavailable, IteratorUnusable."""
        answer = self._call("get_records", ShardIterator=iterator, Limit=limit)
        records = [_as_lambda_delivers(record) for record in answer["Records"]]
        return StreamPage(records, answer.get("NextShardIterator"))

    def _call(self, operation: str, **request: Any) -> Mapping[str, Any]:  # noqa: ANN401  boto's types
        with aws_errors():
            try:
                answer: Mapping[str, Any] = getattr(self._streams, operation)(**request)
            except ClientError as error:
                if error.response["Error"]["Code"] in _ITERATOR_UNUSABLE:
                    raise IteratorUnusable from error
                raise
        return answer

    def _stream_arn(self) -> str:
        if not self._arn:
            with aws_errors():
                table = self._tables.describe_table(TableName=self._table)["Table"]
            if not table.get("StreamSpecification", {}).get("StreamEnabled"):
                message = (
                    f"table {self._table} has no stream: enable one with the view type"
                    " NEW_AND_OLD_IMAGES"
                )
                raise Unavailable(message)
            self._arn = table["LatestStreamArn"]
        return self._arn


def _as_lambda_delivers(record: Mapping[str, Any]) -> StreamRecord:
    """Return *record* with the instant as a number and the identity in lower case."""
    change = dict(record["dynamodb"])
    at = change["ApproximateCreationDateTime"]
    if isinstance(at, datetime):
        change["ApproximateCreationDateTime"] = at.timestamp()
    delivered = {**record, "dynamodb": change}
    if identity := record.get("userIdentity"):
        delivered["userIdentity"] = {
            "type": identity.get("Type"),
            "principalId": identity.get("PrincipalId"),
        }
    return delivered
