"""Group leases: items of the control table, each changed by one conditional write."""

from datetime import datetime
from typing import Any, Final

from headrace.domain.ids import group_key
from headrace.domain.lease import GroupChange, GroupState, LeaseGroup
from headrace.store import keys
from headrace.store.dynamo.control import ControlTable, control_key
from headrace.store.items import LENGTH, MICROS, SECONDS, TEXT, Form, Item

_STATE: Final = Form(TEXT.encode, lambda value: GroupState(value["S"]))
_TEXTS: Final = Form(
    lambda texts: {"SS": sorted(texts)}, lambda value: frozenset(value.get("SS", ()))
)
_FIELDS: Final[dict[str, tuple[str, Form]]] = {
    "id": ("id", TEXT),
    "name": ("name", TEXT),
    "keepalive": ("keepalive", LENGTH),
    "granted_until": ("granted_until", MICROS),
    "expires_at": (keys.EXPIRES_AT, MICROS),
    "kept_until": (keys.TTL, SECONDS),
    "state": ("state", _STATE),
    "queues": (keys.QUEUES, _TEXTS),
    "cancelled": ("cancelled", _TEXTS),
}


class GroupLeaseTable(ControlTable):
    """Implements the group leases of ``headrace.store.base.Store``."""

    def open_group(self, group: LeaseGroup, *, now: datetime) -> bool:
        answer, there = self._write(
            self._client.put_item,
            Item=_item(group),
            ConditionExpression="attribute_not_exists(#pk) OR #ttl <= :now",
            ExpressionAttributeNames={"#pk": keys.PK, "#ttl": keys.TTL},
            ExpressionAttributeValues={":now": SECONDS.encode(now)},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        # What is there may be our own, where an answer was lost.
        return answer is not None or there.get("id") == {"S": group.id}

    def group(self, group_id: str) -> LeaseGroup | None:
        item = self._item(keys.GROUPS, group_key(group_id))
        found = _group(item) if item else None
        return found if found is not None and found.id == group_id else None

    def change_group(self, change: GroupChange) -> LeaseGroup | None:
        answer, _ = self._write(
            self._client.update_item,
            Key=control_key(keys.GROUPS, group_key(change.id)),
            ReturnValues="ALL_NEW",
            **_Update(change).arguments(),
        )
        return None if answer is None else _group(answer["Attributes"])


class _Update:
    """A change as the arguments of UpdateItem."""

    def __init__(self, change: GroupChange) -> None:
        self._change = change
        self._names: dict[str, str] = {}
        self._values: Item = {}

    def arguments(self) -> dict[str, Any]:
        change = self._change
        when = [
            f"{self._name('id')} = {self._value('id', change.id)}",
            f"{self._name('state')} = {self._value('state', GroupState.OPEN)}",
        ]
        if change.after is not None:
            when.append(f"{self._end} > {self._value('expires_at', change.after)}")
        if change.ends_at is not None:
            when.append(f"{self._end} = {self._value('expires_at', change.ends_at)}")
        made = [
            f"{self._name(field)} = {self._value(field, value)}"
            for field, value in change.put.items()
        ]
        if change.renewed_at is not None:
            now = self._value("expires_at", change.renewed_at)
            made.append(f"{self._end} = {self._name('keepalive')} + {now}")
        clauses = [f"SET {', '.join(made)}"] if made else []
        added = [
            f"{self._name(field)} {self._value(field, {member})}"
            for field, member in (("queues", change.queue), ("cancelled", change.cancelled))
            if member is not None
        ]
        if added:
            clauses.append(f"ADD {', '.join(added)}")
        return {
            "ConditionExpression": " AND ".join(when),
            "UpdateExpression": " ".join(clauses),
            "ExpressionAttributeNames": self._names,
            "ExpressionAttributeValues": self._values,
        }

    @property
    def _end(self) -> str:
        return self._name("expires_at")  # DynamoDB refuses a name that nothing uses

    def _name(self, field: str) -> str:
        alias = f"#{field}"
        self._names[alias] = _FIELDS[field][0]
        return alias

    def _value(self, field: str, value: object) -> str:
        key = f":v{len(self._values)}"
        self._values[key] = _FIELDS[field][1].encode(value)
        return key


def _item(group: LeaseGroup) -> Item:
    item = control_key(keys.GROUPS, group.key)
    for field, (attribute, form) in _FIELDS.items():
        value = getattr(group, field)
        if value:  # an empty set is nothing DynamoDB could keep
            item[attribute] = form.encode(value)
    return item


def _group(item: Item) -> LeaseGroup:
    fields = {
        field: form.decode(item[attribute])
        for field, (attribute, form) in _FIELDS.items()
        if attribute in item
    }
    return LeaseGroup(**{"name": None, **fields})
