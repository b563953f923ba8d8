"""What holds deliveries back: items of the control table whose numbers the table itself adds up.

So that many may write to one at a time and none has to try again because another did.
"""

from datetime import timedelta
from typing import Final

from headrace.domain.rate import Bucket, Draw, Rate
from headrace.store import keys
from headrace.store.base import charge
from headrace.store.dynamo.control import ControlTable, control_key
from headrace.store.dynamo.vendor import charge_all, vendor_errors
from headrace.store.items import MICROS, Item, Value

_TRIES: Final = 3  # a bucket may run dry, and fill up, while we look


class Limits(ControlTable):
    """Implements the limits of ``headrace.store.base.Store``."""

    def bucket(self, queue: str) -> Bucket | None:
        with vendor_errors():
            answer = self._client.get_item(
                TableName=self._control,
                Key=control_key(keys.BUCKETS, queue),
                ReturnConsumedCapacity="TOTAL",
            )
        charge_all(answer, write=False)
        return _bucket(answer.get("Item"))

    def draw(self, queue: str, draw: Draw, *, seen: Bucket | None) -> tuple[Bucket | None, bool]:
        there = seen
        for _ in range(_TRIES):
            write = _from_there(draw) if _goes_on(there, draw) else _from_now(draw)
            made, there = self._write_bucket(queue, write)
            if made:
                return there, True
            if not draw.allowed(there):
                break
        return there, False

    def replace_bucket(self, queue: str, bucket: Bucket, *, expects: Bucket | None) -> bool:
        set_all = "SET #given = :given, #rate = :rate, #since = :since"
        values: dict[str, Value] = {
            ":given": {"N": str(bucket.given)},
            ":rate": _rate_value(bucket.rate),
            ":since": MICROS.encode(bucket.since),
        }
        condition = "attribute_not_exists(#given)"
        if expects is not None:
            condition = "#given = :expected AND #rate = :same"
            values[":expected"] = {"N": str(expects.given)}
            values[":same"] = _rate_value(expects.rate)
        made, there = self._write_bucket(queue, (set_all, condition, values))
        return made or there == bucket  # a repeat after a lost answer

    def drop_bucket(self, queue: str) -> None:
        self.drop_record(keys.BUCKETS, queue)

    def _write_bucket(
        self, queue: str, write: tuple[str, str, dict[str, Value]]
    ) -> tuple[bool, Bucket | None]:
        """Make one conditional write; tell whether it was made, and what is there then."""
        update, condition, values = write
        names = {"#given": keys.GIVEN, "#rate": keys.RATE, "#since": keys.SINCE}
        used = {alias: name for alias, name in names.items() if alias in update + condition}
        with vendor_errors():
            try:
                answer = self._client.update_item(
                    TableName=self._control,
                    Key=control_key(keys.BUCKETS, queue),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeNames=used,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                    ReturnConsumedCapacity="TOTAL",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except self._client.exceptions.ConditionalCheckFailedException as error:
                charge(write=1.0)
                return False, _bucket(error.response.get("Item"))
        charge_all(answer, write=True)
        return True, _bucket(answer["Attributes"])


def _goes_on(there: Bucket | None, draw: Draw) -> bool:
    """Tell whether *draw* begins where the line is given away to, and not later."""
    return there is not None and there.given >= draw.after


def _from_there(draw: Draw) -> tuple[str, str, dict[str, Value]]:
    """Return the write by which the table adds to what is given away, whoever else does too."""
    return (
        "SET #given = #given + :length",
        "#rate = :rate AND #given BETWEEN :after AND :last",
        {
            ":length": {"N": str(draw.length)},
            ":rate": _rate_value(draw.rate),
            ":after": {"N": str(draw.after)},
            ":last": {"N": str(draw.until - draw.length)},
        },
    )


def _from_now(draw: Draw) -> tuple[str, str, dict[str, Value]]:
    """Return the write that begins anew, where there is none or it has been idle."""
    return (
        "SET #given = :given, #rate = :rate, #since = if_not_exists(#since, :since)",
        "attribute_not_exists(#given) OR (#rate = :rate AND #given < :after)",
        {
            ":given": {"N": str(draw.after + draw.length)},
            ":rate": _rate_value(draw.rate),
            ":since": MICROS.encode(draw.since),
            ":after": {"N": str(draw.after)},
        },
    )


def _rate_value(rate: Rate) -> Value:
    return {"S": f"{rate.max_tokens}/{rate.unit}"}


def _bucket(item: Item | None) -> Bucket | None:
    if item is None or keys.GIVEN not in item:
        return None
    tokens, interval = map(int, item[keys.RATE]["S"].split("/"))
    rate = Rate(tokens, timedelta(microseconds=interval))
    return Bucket(int(item[keys.GIVEN]["N"]), rate, MICROS.decode(item[keys.SINCE]))
