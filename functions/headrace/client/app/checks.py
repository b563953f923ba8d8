"""Values that people give, checked where they are given: errors name the field and the limit.

What a report carries has to be right before it is sent, because the service refuses a batch of
reports as a whole; so what it would refuse is refused here.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.retry import Backoff, RetryStrategy

Duration: TypeAlias = float | timedelta  # a number is seconds
Retries: TypeAlias = int | RetryStrategy


def wrong(field: str, message: str) -> InvalidRequest:
    """Return the error that says what is wrong with *field*."""
    return all_wrong([FieldError(field, message)])


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
    _within(field, number, bounds, unit=" seconds")
    return number


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


def name(field: str, value: object) -> str:
    """Return the name of a queue or schedule.  Raises InvalidRequest."""
    if not isinstance(value, str) or not limits.NAME_RE.fullmatch(value):
        raise wrong(field, f"must match {limits.NAME}, which {value!r:.140} does not")
    return value


def task_id(field: str, value: object) -> str:
    """Return the id of a task.  Raises InvalidRequest."""
    if not isinstance(value, str) or not limits.TASK_ID_RE.fullmatch(value):
        raise wrong(field, f"must match {limits.TASK_ID}, which {value!r:.140} does not")
    return value


def key(field: str, value: object) -> str:
    """Return a dedupe key.  Raises InvalidRequest."""
    return _text(field, value, *limits.DEDUPE_KEY_BYTES)


def tags(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Return tags.  Raises InvalidRequest."""
    if not isinstance(value, Mapping):
        raise wrong(field, f"must be a mapping of texts, not {type(value).__name__}")
    if len(value) > limits.TAGS:
        raise wrong(field, f"must have at most {limits.TAGS} tags; it has {len(value)}")
    return {
        _text(field, tag, 1, limits.TAG_KEY_BYTES): _text(
            f"{field}.{tag}", text, 0, limits.TAG_VALUE_BYTES
        )
        for tag, text in value.items()
    }


def retry_strategy(field: str, value: object) -> RetryStrategy:
    """Return a strategy; a number is that many retries, with the usual backoff.

    Raises InvalidRequest.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = RetryStrategy(max_retries=value)
    if not isinstance(value, RetryStrategy):
        raise wrong(field, f"must be a number or a RetryStrategy, not {type(value).__name__}")
    wait = limits.RETRY_DELAY_SECONDS
    if value.kind == Backoff.INTERVALS:
        low, high = limits.INTERVALS
        if not low <= len(value.intervals) <= high:
            raise wrong(f"{field}.intervals", f"must have {low} to {high} entries")
        for place, interval in enumerate(value.intervals):
            _within(f"{field}.intervals[{place}]", interval, wait, unit=" seconds")
    elif value.intervals:
        raise wrong(f"{field}.intervals", "must be empty unless kind is intervals")
    _within(f"{field}.max_retries", value.max_retries, limits.MAX_RETRIES)
    _within(f"{field}.base_seconds", value.base_seconds, limits.BASE_SECONDS)
    _within(f"{field}.max_delay_seconds", value.max_delay_seconds, wait)
    _within(f"{field}.jitter", value.jitter, (0, 1))
    return value


def _within(field: str, number: float, bounds: tuple[float, float], *, unit: str = "") -> None:
    low, high = bounds
    if not math.isfinite(number) or not low <= number <= high:
        raise wrong(field, f"must be {low} to {high}{unit}, not {number}")


def _text(field: str, value: object, least: int, most: int) -> str:
    if not isinstance(value, str):
        raise wrong(field, f"must be a text, not {type(value).__name__}")
    size = limits.utf8_bytes(value)
    if not least <= size <= most:
        raise wrong(field, f"must be {least} to {most} bytes of UTF-8; it is {size}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise wrong(field, "must be text; it has half of a surrogate pair")
    return value
