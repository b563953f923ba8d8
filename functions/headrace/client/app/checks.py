"""Values that people give, checked where they are given: errors name the field and the limit.

What a report carries has to be right before it is sent, because the service refuses a batch of
reports as a whole; so what it would refuse is refused here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settings import Kind, own_settings
from headrace.domain.task_fields import TaskField

Duration: TypeAlias = float | timedelta  # a number is seconds

wrong: Final = InvalidRequest.of


def all_wrong(errors: Sequence[FieldError]) -> InvalidRequest:
    """Return one error for everything in *errors*; fields with the same message share it."""
    fields: dict[str, list[str]] = {}
    for each in errors:
        fields.setdefault(each.message, []).append(each.field)
    detail = "; ".join(f"{', '.join(names)} {message}" for message, names in fields.items())
    return InvalidRequest(detail, errors=errors)


def seconds(field: str, value: object, bounds: tuple[float, float]) -> float:
    """Return a duration as seconds within *bounds*.  Raises InvalidRequest."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise wrong(field, f"must be seconds or a timedelta, not {type(value).__name__}")
    _right(field, limits.number_fault(number, bounds, unit="seconds"))
    return number


def optional(field: str, value: object, bounds: tuple[float, float]) -> float | None:
    """Return a duration as seconds within *bounds*, or None.  Raises InvalidRequest."""
    return None if value is None else seconds(field, value, bounds)


def aware(field: str, value: object) -> datetime:
    """Return an instant that has a time zone.  Raises InvalidRequest."""
    if not isinstance(value, datetime):
        raise wrong(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise wrong(
            field,
            f"must be an aware datetime: {value.isoformat()} has no time zone "
            "(give datetime(…, tzinfo=UTC), or use delay=)",
        )
    return value


def name(field: str, value: str) -> str:
    """Return the name of a queue or schedule.  Raises InvalidRequest."""
    _right(field, limits.pattern_fault(value, limits.NAME_RE))
    return value


def arguments(place: int, given: object) -> Mapping[str, Any]:
    """Return the arguments of one call of many, by name.  Raises InvalidRequest."""
    if not isinstance(given, Mapping):
        message = f"must be a mapping of arguments by name, as {{'to': 'ada'}}, not {given!r:.140}"
        raise wrong(f"calls[{place}]", message)
    return given


def app_name(value: str) -> str:
    """Return the name of an app, which is a tag of its schedules.  Raises InvalidRequest."""
    _right("name", limits.text_fault(value, limits.TAG_VALUE_BYTES, 1))
    return value


def task_id(field: str, value: str) -> str:
    """Return the id of a task.  Raises InvalidRequest."""
    _right(field, limits.pattern_fault(value, limits.TASK_ID_RE))
    return value


def text(name: str, value: str, field: TaskField) -> str:
    """Return the text of a *field* of a task.  Raises InvalidRequest with *name*."""
    _right(name, field.fault(value))
    return value


def tags(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Return tags.  Raises InvalidRequest."""
    if not isinstance(value, Mapping):
        raise wrong(field, f"must be a mapping of texts, not {type(value).__name__}")
    faults = [
        FieldError(field if tag is None else f"{field}.{tag}", fault)
        for tag, fault in limits.tags_faults(value)
    ]
    if faults:
        raise all_wrong(faults)
    return dict(value)


W = TypeVar("W", bound=StrEnum)


def one_of(field: str, value: object, words: type[W]) -> W:
    """Return *value* as one of *words*.  Raises InvalidRequest."""
    try:
        return words(value)  # type: ignore[arg-type]  # a wrong type raises ValueError
    except ValueError:
        known = ", ".join(words)
        raise wrong(field, f"must be one of {known}, not {value!r:.140}") from None


def retries(field: str, value: object) -> int:
    """Return *value* as a number of retries.  Raises InvalidRequest."""
    if isinstance(value, RetryStrategy):
        raise wrong(field, "must be a number; a RetryStrategy is retry_strategy=")
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(field, f"must be a number, not {type(value).__name__}")
    _right(field, limits.number_fault(value, limits.MAX_RETRIES, whole=True))
    return value


def retry_strategy(field: str, value: object) -> RetryStrategy:
    """Return *value* as a strategy within the limits.  Raises InvalidRequest."""
    if not isinstance(value, RetryStrategy):
        hint = "; a number of retries is max_retries=" if isinstance(value, int) else ""
        raise wrong(field, f"must be a RetryStrategy, not {type(value).__name__}{hint}")
    wait = limits.RETRY_DELAY_SECONDS
    if value.kind == Backoff.INTERVALS:
        low, high = limits.INTERVALS
        if not low <= len(value.intervals) <= high:
            raise wrong(f"{field}.intervals", f"must have {low} to {high} entries")
        for place, interval in enumerate(value.intervals):
            fault = limits.number_fault(interval, wait, unit="seconds")
            _right(f"{field}.intervals[{place}]", fault)
    elif value.intervals:
        raise wrong(f"{field}.intervals", "must be empty unless kind is intervals")
    for one in own_settings(RetryStrategy):
        if one.kind is not Kind.WORD:
            fault = limits.number_fault(getattr(value, one.name), one.within)
            _right(f"{field}.{one.name}", fault)
    return value


def _right(field: str, fault: str | None) -> None:
    if fault:
        raise wrong(field, fault)
