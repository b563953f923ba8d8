"""Which fields of a queue's tasks are indexed, and by which terms the index knows a task.

A field is named as in a query: ``tag:tenant``, ``payload.order``.  A term stands for a field and
one value of it; it is a digest, so that any text has the same short form.  Two texts may share
one: every task that a term leads to is compared with the filter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from headrace.domain import limits
from headrace.domain.filters import TaskFilter
from headrace.domain.texts import parts_of, path_of, quoted, read_payload, text_at, unquoted

TAG: Final = "tag:"
PAYLOAD: Final = "payload."
FIELD_LENGTH: Final = 8
TERM_LENGTH: Final = 24
_PARTS: Final = 16


@dataclass(frozen=True, slots=True)
class Match:
    """What the index says: a task of *queue* has the value that *term* stands for."""

    queue: str
    term: str
    task_id: str


@lru_cache(1024)
def field_digest(field: str) -> str:
    """Return how the terms of *field* begin."""
    return _digest(field, FIELD_LENGTH)


def term_of(field: str, value: str) -> str:
    """Return the term of *value* in *field*."""
    return field_digest(field) + _digest(value, TERM_LENGTH - FIELD_LENGTH)


def part_of(term: str) -> int:
    """Return in which of ``PARTS`` partitions *term* is, always the same one."""
    return int(term[FIELD_LENGTH], 16)


PARTS: Final = range(_PARTS)


def _digest(text: str, length: int) -> str:
    found = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=length // 2)
    return found.hexdigest()


def read_field(text: str) -> tuple[str | None, str]:
    """Return a field as it is written always, and what is wrong with it, behind its name."""
    if text.startswith(TAG) and len(text) > len(TAG):
        key = text.removeprefix(TAG)
        try:
            key = unquoted(key)
        except ValueError:
            return None, "must be tag:key, or tag: and a key in quotes as in JSON"
        fault = limits.text_fault(key, limits.TAG_KEY_BYTES, 1)
        return (None, fault) if fault else (tag_field(key), "")
    if text.startswith(PAYLOAD):
        path = text.removeprefix(PAYLOAD)
        if fault := limits.text_fault(path, limits.PAYLOAD_PATH_BYTES, 1):
            return None, fault
        parts = parts_of(path)
        if parts is None:
            return None, "must be payload. and names with dots between"
        return PAYLOAD + path_of(parts), ""
    return None, "must be tag:key or payload.path, as tag:tenant or payload.order.id"


def tag_field(key: str) -> str:
    """Return the field of a tag."""
    plain = key.isprintable() and not any(sign in key for sign in ' ",=\\')
    return f"{TAG}{key if plain else quoted(key)}"


def fields_fault(fields: Sequence[str]) -> str | None:
    """Return the fault of the fields that a queue is to index, behind the setting's name."""
    for field in fields:
        known, fault = read_field(field)
        if known is None:
            return f"{field!r:.80} {fault}"
    if len({read_field(field)[0] for field in fields}) < len(fields):
        return "must name each field once"
    for kind, name in ((TAG, "tags"), (PAYLOAD, "payload paths")):
        number = sum(field.startswith(kind) for field in fields)
        if number > limits.INDEXED:
            return f"must have at most {limits.INDEXED} {name}; it has {number}"
    return None


def needs_payload(fields: Iterable[str]) -> bool:
    """Return whether any of *fields* is in payloads."""
    return any(field.startswith(PAYLOAD) for field in fields)


def terms_of(fields: Iterable[str], tags: Mapping[str, str], payload: str | None) -> Iterator[str]:
    """Yield the terms by which the index knows a task that has *tags* and *payload*."""
    by_field = {tag_field(key): value for key, value in tags.items()}
    content = read_payload(payload) if needs_payload(fields := [*fields]) else None
    for field in fields:
        if field.startswith(PAYLOAD):
            value = text_at(content, field.removeprefix(PAYLOAD))
        else:
            value = by_field.get(field)
        if value is not None and limits.text_fault(value, limits.PAYLOAD_VALUE_BYTES) is None:
            yield term_of(field, value)


def wanted_term(fields: Iterable[str], where: TaskFilter) -> str | None:
    """Return a term that all tasks have which *where* means; None where no field tells."""
    known = set(fields)
    named = [(PAYLOAD + path, value) for path, value in where.payload.items()]
    named += [(tag_field(key), value) for key, value in where.tags.items() if value is not None]
    return next((term_of(field, value) for field, value in named if field in known), None)
