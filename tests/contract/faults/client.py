"""What no emulator shows: lost answers, throttling, a lagging index, a table that is away.

A client stands between the store and the real engine and makes these happen when told, so often as
a seeded chance says.  Whatever it does, an answer is right, and nothing happens twice.
"""

import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from headrace.local.tables import DynamoDBClient
from headrace.store import keys

WRITES = {"put_item", "update_item", "delete_item", "transact_write_items"}
BATCHES = {"batch_execute_statement"}
READS = {"get_item", "batch_get_item", "query"}
Answer = dict[str, Any]
Call = Callable[..., Answer]


@dataclass
class Faults:
    """What goes wrong, as shares of all calls (of all statements or keys, for throttling).

    ``lost``: a write takes effect, its answer is lost, and the SDK sends it again.
    ``cut``: the same, but the SDK has no try left.  ``away``: the call never arrives.
    ``stuck`` tells of a statement whether it is throttled each time.
    """

    lost: float = 0.0
    cut: float = 0.0
    away: float = 0.0
    throttled: float = 0.0
    stale: float = 0.0
    stuck: Callable[[Answer], bool] = lambda _: False
    meanwhile: Callable[[], None] | None = None  # what others do before a lost write is repeated
    blocked: Callable[[str, Answer], bool] = lambda _name, _arguments: False
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def strike(self, share: float) -> bool:
        return self.chance.random() < share


class FaultyClient:
    """boto3's client as the store sees it, on a bad day."""

    def __init__(self, client: DynamoDBClient, faults: Faults) -> None:
        self.real = client
        self.exceptions = client.exceptions
        self.batch_write_item = client.batch_write_item
        self.faults = faults
        self._index: list[Answer] = []
        for name in WRITES | BATCHES | READS:
            setattr(self, name, partial(self._call, name, getattr(client, name)))

    def _call(self, name: str, real: Call, /, **arguments: Any) -> Answer:
        if self.faults.strike(self.faults.away) or self.faults.blocked(name, arguments):
            raise EndpointConnectionError(endpoint_url="the table")
        match name:
            case "query" if arguments.get("IndexName") and self.faults.strike(self.faults.stale):
                return self._lagging(arguments)
            case "batch_get_item":
                return self._partly_read(real, arguments)
            case "batch_execute_statement":
                return self._partly_written(real, arguments)
            case _ if name in READS:
                return real(**arguments)
        if self.faults.strike(self.faults.throttled):
            error = {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": ""}}
            raise ClientError(error, name)
        if name == "transact_write_items":  # boto3 puts the same token on every try
            arguments |= {"ClientRequestToken": uuid.uuid4().hex}
        return self._answered(real, arguments)

    def _answered(self, real: Call, arguments: Answer) -> Answer:
        """Send a write; its answer may get lost, and the SDK then sends it again, or gives up."""
        if self.faults.strike(self.faults.cut):
            self._unheard(real, arguments)
            raise ReadTimeoutError(endpoint_url="the table")
        if self.faults.strike(self.faults.lost):
            self._unheard(real, arguments)
            if self.faults.meanwhile is not None:
                others, self.faults.meanwhile = self.faults.meanwhile, None
                others()
        return real(**arguments)

    @staticmethod
    def _unheard(real: Call, arguments: Answer) -> None:
        with suppress(ClientError):  # a refusal, which the SDK hears when it asks again
            real(**arguments)

    def _partly_written(self, real: Call, arguments: Answer) -> Answer:
        """Throttle some statements of a batch and send the others."""
        statements = arguments["Statements"]
        errors: list[Answer | None] = [
            {"Error": {"Code": self.faults.chance.choice(_THROTTLINGS), "Message": "slow down"}}
            if self.faults.stuck(statement) or self.faults.strike(self.faults.throttled)
            else None
            for statement in statements
        ]
        sent = [one for one, error in zip(statements, errors, strict=True) if error is None]
        answer: Answer = {"Responses": []}
        if sent:
            answer = self._answered(real, {**arguments, "Statements": sent})
        made = iter(answer["Responses"])
        return answer | {"Responses": [error or next(made) for error in errors]}

    def _partly_read(self, real: Call, arguments: Answer) -> Answer:
        """Leave some keys of a read unprocessed."""
        ((table, request),) = arguments["RequestItems"].items()
        left = [key for key in request["Keys"] if self.faults.strike(self.faults.throttled)]
        requested = [key for key in request["Keys"] if key not in left]
        answer: Answer = {"Responses": {}}
        if requested:
            answer = real(**{**arguments, "RequestItems": {table: {**request, "Keys": requested}}})
        return answer | {"UnprocessedKeys": {table: {**request, "Keys": left}} if left else {}}

    def freeze_index(self, table: str) -> None:
        """Remember the index as it is; a stale query is answered from it until the next time."""
        self._index = self.real.scan(TableName=table, IndexName=keys.BY_STATE)["Items"]

    def _lagging(self, query: Answer) -> Answer:
        """Answer a query of the index as it was."""
        values = query["ExpressionAttributeValues"]
        since = int(values.get(":since", {"N": "0"})["N"])
        until = int(values.get(":until", {"N": str(10**18)})["N"])
        found = sorted(
            (
                item
                for item in self._index
                if item[keys.QUEUE_STATE] == values[":place"] and since <= _at(item)[0] <= until
            ),
            key=_at,
            reverse=not query.get("ScanIndexForward", True),
        )
        if (start := query.get("ExclusiveStartKey")) is not None:
            found = [item for item in found if _at(item) > _at(start)]
        limit = query.get("Limit", len(found))
        answer: Answer = {"Items": found[:limit], "Count": len(found[:limit])}
        if len(found) > limit:
            answer["LastEvaluatedKey"] = found[limit - 1]
        return answer


_THROTTLINGS = ("ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded")


def _at(item: Answer) -> tuple[int, str]:
    return int(item[keys.SCHEDULED_AT]["N"]), item[keys.TASK_ID]["S"]
