"""A key's record, and beside it one under its name, which says whose the name is.

Both are written together, so that of two keys of one name only one is made.
"""

from typing import Final

from msgspec import convert

from headrace.domain.access import Former, ShownKey, StoredKey
from headrace.store.base import Record

KIND: Final = "key"
NAMES: Final = "key_name"


def to_record(stored: StoredKey) -> Record:
    """Return a key as its record."""
    key, former = stored.key, stored.former
    body = {
        "name": key.name,
        "role": key.role.value,
        "queues": list(key.queues),
        "hash": stored.hash,
        "former": former and {"hash": former.hash, "until": former.until.isoformat()},
        "created_at": key.created_at.isoformat(),
        "last_used_at": key.last_used_at and key.last_used_at.isoformat(),
        "expires_at": key.expires_at and key.expires_at.isoformat(),
    }
    return Record(KIND, key.id, body, stored.version, key.listed_until)


def from_record(record: Record) -> StoredKey:
    """Return the key of *record*; one of an older version has no expiry."""
    body = record.body
    key = convert({**body, "id": record.name}, ShownKey)
    former = convert(body.get("former"), Former | None)
    return StoredKey(key, body["hash"], former, record.version)


def name_record(key: ShownKey) -> Record:
    """Return the record that says that *key* has its name.

    Its version is the id as a number.  No id comes again, so none of these versions does: counted
    up from one, a name that is given up and taken anew would look as if nothing had happened.
    """
    version = int(key.id.removeprefix("key_"), 16)
    return Record(NAMES, key.name, {"id": key.id}, version, key.listed_until)
