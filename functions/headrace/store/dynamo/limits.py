"""What holds deliveries back: items of the control table whose numbers the table itself adds up.

So that many may write to one at a time and none has to try again because another did.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

from headrace.domain.rate import Bucket, Draw, Rate
from headrace.store import keys
from headrace.store.dynamo.control import ControlTable, control_key
from headrace.store.items import MICROS, Item, Value

_POOL: Final = "{:05}"
_LAST_POOL: Final = 99_999
_TRIES: Final = 3  # a bucket may run dry, and fill up, while we look


class Limits(ControlTable):
    """Implements the limits of ``headrace.store.base.Store``."""

    def reserve(
        self, queue: str, pool: int, texts: Collection[str], *, room: int
    ) -> tuple[frozenset[str], bool]:
        wanted = frozenset(texts)
        if len(wanted) > room:
            there = self.pools(queue, pool, pool).get(pool, frozenset())
            return there, there >= wanted
        there, made = self._write_pool(
            queue, pool, "ADD #held :texts", wanted, most=room - len(wanted)
        )
        return there, made or there >= wanted  # a repeat after a lost answer

    def free(self, queue: str, pool: int, texts: Collection[str]) -> frozenset[str]:
        there, _ = self._write_pool(queue, pool, "DELETE #held :texts", frozenset(texts))
        return there

    def pools(self, queue: str, first: int, last: int) -> dict[int, frozenset[str]]:
        return {pool: held for pool, held in self._pools(queue, first, last) if held}

    def _pools(self, queue: str, first: int, last: int) -> Iterator[tuple[int, frozenset[str]]]:
        found = self._items(
            KeyConditionExpression="#pk = :kind AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": keys.PK, "#sk": keys.SK},
            ExpressionAttributeValues={
                ":kind": {"S": keys.SLOTS.format(queue)},
                ":first": {"S": _POOL.format(first)},
                ":last": {"S": _POOL.format(last)},
            },
        )
        return ((int(item[keys.SK]["S"]), _held(item)) for item in found)

    def drop_pools(self, queue: str) -> None:
        for pool, _ in list(self._pools(queue, 0, _LAST_POOL)):
            self.drop_record(keys.SLOTS.format(queue), _POOL.format(pool))

    def _write_pool(
        self,
        queue: str,
        pool: int,
        update: str,
        texts: frozenset[str],
        *,
        most: int | None = None,
    ) -> tuple[frozenset[str], bool]:
        """Make one write of a pool; return what is in it then, and whether it was made."""
        values: dict[str, Value] = {":texts": {"SS": sorted(texts)}}
        condition: dict[str, str] = {}
        if most is not None:
            values[":most"] = {"N": str(most)}
            room = "attribute_not_exists(#held) OR size(#held) <= :most"
            condition["ConditionExpression"] = room
        answer, stored = self._write(
            self._client.update_item,
            Key=control_key(keys.SLOTS.format(queue), _POOL.format(pool)),
            UpdateExpression=update,
            ExpressionAttributeNames={"#held": keys.HELD},
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **condition,
        )
        if answer is None:
            return _held(stored), False
        return _held(answer.get("Attributes") or {}), True

    def bucket(self, queue: str) -> Bucket | None:
        return _bucket(self._item(keys.BUCKETS, queue, consistent=False))

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
        answer, stored = self._write(
            self._client.update_item,
            Key=control_key(keys.BUCKETS, queue),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=used,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if answer is None:
            return False, _bucket(stored)
        return True, _bucket(answer["Attributes"])


def _held(item: Item) -> frozenset[str]:
    return frozenset(item.get(keys.HELD, {"SS": ()})["SS"])


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
