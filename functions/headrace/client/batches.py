"""Cutting what is many into calls, and putting the answers together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, TypeAlias

import msgspec

from headrace.client.codec import Codec
from headrace.client.models import Bulk, Enqueued, Queue
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest, NotEnqueued

Errors: TypeAlias = Literal["raise", "return"]
"""Whether an entry that comes out INVALID is an error, or a result like the others."""

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


def raises(errors: Errors) -> bool:
    """Whether INVALID is an error.  Raises InvalidRequest for another word than the two."""
    if errors not in {"raise", "return"}:
        message = f'must be "raise" or "return", not {errors!r:.100}'
        raise InvalidRequest(f"errors {message}", errors=[FieldError("errors", message)])
    return errors == "raise"


def checked(results: list[Enqueued], *, raising: bool) -> list[Enqueued]:
    """Return *results*.  If *raising*, raises NotEnqueued naming every INVALID entry."""
    invalid = {
        f"tasks[{place}]": result.detail or ""
        for place, result in enumerate(results)
        if result.outcome == "INVALID"
    }
    if raising and invalid:
        raise not_enqueued(invalid, results)
    return results


def not_enqueued(invalid: Mapping[str, str], results: Sequence[Enqueued] = ()) -> NotEnqueued:
    """Return the error about the *invalid* entries (there are some) among *results*."""
    errors = [FieldError(field, f"was not enqueued: {why}") for field, why in invalid.items()]
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    error = NotEnqueued(f"{errors[0].field} {errors[0].message}{more}", errors=errors)
    error.results = tuple(results)
    return error


def ids_in_calls(ids: Sequence[str] | None, where: Mapping[str, Any] | None) -> list[Sequence[str]]:
    """Cut the *ids* of a bulk action into what one call takes; none if it has a filter instead.

    Raises InvalidRequest unless exactly one of ids and the filter *where* is given, so that ids
    are never dropped in favour of a filter that means every task.
    """
    if ids is None and where is None:
        raise _both("one of ids and filter is needed")
    if ids is not None and where is not None:
        raise _both("give exactly one of ids and filter")
    if ids is None:
        return []
    if isinstance(ids, str | bytes):
        message = "must be a list of ids, not one text"
        raise InvalidRequest(f"ids {message}", errors=[FieldError("ids", message)])
    # An empty list is one call: the service says what is wrong with it.
    return [
        ids[start : start + limits.BULK_IDS] for start in range(0, len(ids) or 1, limits.BULK_IDS)
    ]


def _both(message: str) -> InvalidRequest:
    return InvalidRequest(message, errors=[FieldError(name, message) for name in ("ids", "filter")])


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
