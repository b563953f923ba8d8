"""The index of values: items of the control table, of a key alone.

A queue's are in some partitions, by the value: what all its tasks have is in one, and a partition
takes a thousand of them a second.
"""

import random
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.indexing import PARTS, TERM_LENGTH, Match, part_of
from headrace.store import keys
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.dynamo.control import ControlTable, control_key

_AT_ONCE: Final = 25  # writes of one BatchWriteItem
_TRIES: Final = 6
_PAUSE: Final = 0.05  # seconds, doubled with each try


class MatchTable(ControlTable):
    """Implements the index of values of ``headrace.store.base.Store``."""

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        writes = [{"PutRequest": {"Item": _key(one)}} for one in dict.fromkeys(there)]
        writes += [{"DeleteRequest": {"Key": _key(one)}} for one in dict.fromkeys(gone) if one.term]
        for start in range(0, len(writes), _AT_ONCE):
            self._write_some(writes[start : start + _AT_ONCE])

    def _write_some(self, writes: list[dict[str, Any]]) -> None:
        pause = _PAUSE
        for _ in range(_TRIES):
            with aws_errors():
                answer = self._client.batch_write_item(
                    RequestItems={self._control: writes}, ReturnConsumedCapacity="TOTAL"
                )
            for part in answer.get("ConsumedCapacity") or ():
                charge_all({"ConsumedCapacity": part}, write=True)
            writes = (answer.get("UnprocessedItems") or {}).get(self._control, [])
            if not writes:
                return
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  jitter is no secret
            pause *= 2
        message = "the table is throttled; not all of the index could be written"
        raise Unavailable(message)

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        query = _query(queue, part_of(term), term)
        if after:
            query["ExclusiveStartKey"] = _key(Match(queue, term, after))
        ids, more = self._names_of(query, ScanIndexForward=not descending, Limit=limit)
        return [task_id[TERM_LENGTH:] for task_id in ids], more

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        left = limit
        for part in PARTS:
            names, more = self._names_of(_query(queue, part, field), Limit=left)
            self.note_matches(
                (), [Match(queue, one[:TERM_LENGTH], one[TERM_LENGTH:]) for one in names]
            )
            left -= len(names)
            if more or left <= 0:
                return True
        return False

    def _names_of(self, query: dict[str, Any], **more: object) -> tuple[list[str], bool]:
        with aws_errors():
            answer = self._client.query(
                TableName=self._control, ReturnConsumedCapacity="TOTAL", **query, **more
            )
        charge_all(answer, write=False)
        names = [item[keys.SK]["S"] for item in answer["Items"]]
        return names, "LastEvaluatedKey" in answer


def _kind(queue: str, part: int) -> str:
    return keys.MATCHES.format(f"{queue}:{part:x}")


def _key(match: Match) -> dict[str, Any]:
    kind = _kind(match.queue, part_of(match.term))
    return control_key(kind, match.term + match.task_id)


def _query(queue: str, part: int, begins: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#pk = :kind AND begins_with(#sk, :begins)",
        "ExpressionAttributeNames": {"#pk": keys.PK, "#sk": keys.SK},
        "ExpressionAttributeValues": {
            ":kind": {"S": _kind(queue, part)},
            ":begins": {"S": begins},
        },
    }
