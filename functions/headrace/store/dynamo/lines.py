"""Lines of groups: numbers of the control table that the table itself adds up.

A line goes on from where it is, or from the highest turn delivered if that is further.  One write
cannot take the larger of two numbers, so it is one of two writes, of which one is guessed.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from zlib import crc32

from headrace.domain.errors import Unavailable
from headrace.domain.fairness import NOBODY, Places, PlaceTaking, TurnTaking
from headrace.domain.slots import GroupLine, SlotTaking
from headrace.store import keys
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.dynamo.control import ControlTable, control_key
from headrace.store.items import SECONDS, Item, Value

_READ_BATCH: Final = 100  # items of one BatchGetItem
_SLOT: Final = re.compile(keys.GROUP_SLOT.format("[0-9]+"))
_TRIES: Final = 6  # a line that is ahead stays so but for being forgotten, so two do


class LineTable(ControlTable):
    """Implements the turns of ``headrace.store.base.Store``."""

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        return int(self._moved(queue, take)[keys.TURN]["N"])

    def take_places(self, queue: str, take: PlaceTaking) -> Places:
        line = self._moved(queue, take)
        end, seq = int(line[keys.TURN]["N"]), int(line[keys.SEQ]["N"])
        return Places(end, seq, line[keys.BEFORE]["S"])

    def _moved(self, queue: str, take: TurnTaking) -> Item:
        """Move a line on; return it as it then is."""
        ahead = take.ahead
        for _ in range(_TRIES):
            moved, there = self._move_line(queue, take, ahead=ahead)
            if moved is not None:
                return moved
            if isinstance(take, PlaceTaking) and there.get(keys.TAIL) == {"S": take.last}:
                return {**there}  # an answer was lost
            ahead = not ahead
        message = "the line of a group keeps changing; try again"
        raise Unavailable(message)

    def _move_line(
        self, queue: str, take: TurnTaking, *, ahead: bool
    ) -> tuple[Item | None, Mapping[str, Value]]:
        """Move a line on from where it is, or from what is delivered.

        Return what is then known of it, None where it is not so, and what was found there instead.
        """
        values: dict[str, Value] = {":delivered": {"N": str(take.delivered)}}
        names = {"#turn": keys.TURN, "#ttl": keys.TTL}
        found: dict[str, str] = {}
        if ahead:
            update, condition = "SET #turn = #turn + :length", "#turn > :delivered"
            values[":length"] = {"N": str(take.length)}
        else:
            update = "SET #turn = :end"
            condition = "attribute_not_exists(#turn) OR #turn <= :delivered"
            values[":end"] = {"N": str(take.delivered + take.length)}
        if isinstance(take, PlaceTaking):
            update += (
                ", #prev = if_not_exists(#tail, :nobody), #tail = :last,"
                " #seq = if_not_exists(#seq, :zero) + :count"
            )
            condition = f"({condition}) AND (attribute_not_exists(#tail) OR #tail <> :last)"
            names |= {"#tail": keys.TAIL, "#prev": keys.BEFORE, "#seq": keys.SEQ}
            values |= {
                ":last": {"S": take.last},
                ":nobody": {"S": NOBODY},
                ":zero": {"N": "0"},
                ":count": {"N": str(take.count)},
            }
            found = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        if take.expires_at is None:
            update += " REMOVE #ttl"
        else:
            update += ", #ttl = :ttl"
            values[":ttl"] = SECONDS.encode(take.expires_at)
        answer, there = self._write(
            self._client.update_item,
            Key=_line_key(queue, take.name),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValues="UPDATED_NEW",
            **found,
        )
        return None if answer is None else answer["Attributes"], there

    def line(self, queue: str, name: str) -> int | None:
        key = _line_key(queue, name)
        return _turn(self._item(key[keys.PK]["S"], key[keys.SK]["S"]))

    def lines(self, queue: str, names: Collection[str]) -> Mapping[str, GroupLine]:
        wanted = list(dict.fromkeys(names))
        found: dict[str, GroupLine] = {}
        for start in range(0, len(wanted), _READ_BATCH):
            for item in self._line_items(queue, wanted[start : start + _READ_BATCH]):
                found[item[keys.SK]["S"]] = _group_line(item)
        return found

    def _line_items(self, queue: str, names: list[str]) -> Iterator[Item]:
        wanted = {"Keys": [_line_key(queue, name) for name in names], "ConsistentRead": True}
        pending: dict[str, Any] = {self._control: wanted}
        for _ in range(_TRIES):
            with aws_errors():
                answer = self._client.batch_get_item(
                    RequestItems=pending, ReturnConsumedCapacity="TOTAL"
                )
            charge_all(answer, write=False)
            yield from answer["Responses"].get(self._control, ())
            pending = answer.get("UnprocessedKeys") or {}
            if not pending:
                return
        message = "the table is throttled; not every line of a group could be read"
        raise Unavailable(message)

    def take_slot(self, queue: str, take: SlotTaking) -> bool:
        names = {"#slot": keys.GROUP_SLOT.format(take.number)}
        values: dict[str, Value] = {":stay": {"S": take.stay}}
        update, condition = "SET #slot = :stay", "attribute_not_exists(#slot)"
        if take.expects is not None:
            condition = "#slot = :expects"
            values[":expects"] = {"S": take.expects}
        if take.expires_at is not None:
            update += ", #ttl = :ttl"
            names["#ttl"] = keys.TTL
            values[":ttl"] = SECONDS.encode(take.expires_at)
        answer, there = self._write(
            self._client.update_item,
            Key=_line_key(queue, take.name),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        # What is there may be our own, where an answer was lost.
        return answer is not None or there.get(names["#slot"]) == {"S": take.stay}

    def delivered_turn(self, queue: str) -> int:
        return _turn(self._item(keys.DELIVERED, queue, consistent=False)) or 0

    def note_delivered(self, queue: str, turn: int, *, expires_at: datetime) -> None:
        self._write(
            self._client.update_item,
            Key=control_key(keys.DELIVERED, queue),
            UpdateExpression="SET #turn = :turn, #ttl = :ttl",
            ConditionExpression="attribute_not_exists(#turn) OR #turn < :turn",
            ExpressionAttributeNames={"#turn": keys.TURN, "#ttl": keys.TTL},
            ExpressionAttributeValues={
                ":turn": {"N": str(turn)},
                ":ttl": SECONDS.encode(expires_at),
            },
        )


def _line_key(queue: str, name: str) -> Item:
    """Return the key of a line: a queue's are spread over partitions, for each bears so much."""
    part = crc32(name.encode()) % keys.LINE_PARTS
    return control_key(f"{keys.LINES.format(queue)}:{part}", name)


def _turn(item: Item | None) -> int | None:
    return None if item is None or keys.TURN not in item else int(item[keys.TURN]["N"])


def _group_line(item: Item) -> GroupLine:
    slots = {
        int(attribute[1:]): value["S"]
        for attribute, value in item.items()
        if _SLOT.fullmatch(attribute)
    }
    until = item.get(keys.TTL)
    return GroupLine(_turn(item) or 0, slots, SECONDS.decode(until) if until else None)
