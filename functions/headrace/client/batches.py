"""Cutting what is many into calls, and putting the answers together."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from headrace.client.codec import Codec
from headrace.client.models import Bulk, Queue
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits

BATCH_BYTES: Final = limits.BODY_BYTES - 1024  # the brackets around the entries


def batches_of(tasks: Iterable[NewTask], codec: Codec) -> Iterator[list[bytes]]:
    """Write *tasks* in batches that one call takes: 25 entries, 4 MiB.

    Raises InvalidRequest or PayloadTooLarge naming the entry, counted from the first of all.
    """
    batch: list[bytes] = []
    size = 0
    for task, place in zip(tasks, count()):
        entry = task_entry(task, codec, path=f"tasks[{place}]")
        if batch and (len(batch) == limits.BATCH or size + len(entry) >= BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry) + 1
    if batch:
        yield batch


def gathered(pages: Iterable[Bulk]) -> Bulk:
    """Put the pages of one action together."""
    matched = changed = 0
    results = []
    for page in pages:
        matched += page.matched
        changed += page.changed
        results += page.results
    return Bulk(matched=matched, changed=changed, results=results)


def merged(queue: Queue, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of *queue* with *changes*, to be sent back with its version."""
    fields: dict[str, Any] = msgspec.to_builtins(queue)
    for name, value in changes.items():
        old = fields.get(name)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        fields[name] = {**old, **value} if isinstance(old, dict) and both else value
    return fields
