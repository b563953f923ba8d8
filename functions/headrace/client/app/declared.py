"""The queue settings that an app declares, checked where they are declared.

They are kept by the path of the field, as ``retry_strategy.max_retries``: what is not declared is
left as it is in the service, in the nested ones too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from headrace.client.app.checks import all_wrong
from headrace.client.app.options import unknown
from headrace.client.queue_fields import QueueFields
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.queue import IntervalUnit
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.wire.base import JsonValue

Declared: TypeAlias = Mapping[str, JsonValue]
"""Settings by path."""

Fault: TypeAlias = Callable[[Any], str | None]

_KIND: Final = "retry_strategy.kind"
_RETRIES: Final = "retry_strategy.max_retries"
_INTERVALS: Final = "retry_strategy.intervals"
_RATE: Final = "dequeuing_settings.rate_limiting"
_PAUSED: Final = "dequeuing_settings.dequeuing_paused"


def declared(queue: str, settings: QueueFields) -> Declared:
    """What *settings* say, by path.

    Raises TypeError for a name that is none, InvalidRequest naming the queue and each wrong field.
    """
    found: dict[str, JsonValue] = {}
    for name, value in settings.items():
        plain = _plain(value)
        if name not in _OBJECTS:
            found[name] = plain
        elif isinstance(plain, dict):
            found |= {f"{name}.{inner}": one for inner, one in plain.items()}
        else:
            raise _refused(queue, [FieldError(name, f"must be a dict, not {value!r:.140}")])
        if isinstance(value, RetryStrategy) and value.intervals:
            found[_RETRIES] = len(value.intervals)  # that of a strategy counts for other kinds
    for path in found:
        _check_name(queue, path)
    if found.get(_PAUSED):
        raise _refused(
            queue, [FieldError(_PAUSED, "is an operator's: run `headrace queue pause` instead")]
        )
    found.pop(_PAUSED, None)  # a DequeuingSettings has it
    faults = [
        FieldError(path, fault)
        for path, value in found.items()
        if (fault := _FIELDS[path](value)) is not None
    ]
    if faults:
        raise _refused(queue, faults)
    return _completed(found)


def nested(fields: Declared) -> dict[str, JsonValue]:
    """*fields* as the API has them."""
    whole: dict[str, JsonValue] = {}
    for path, value in fields.items():
        outer, dot, inner = path.partition(".")
        if dot:
            whole.setdefault(outer, {})[inner] = value
        else:
            whole[outer] = value
    return whole


def by_path(settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Settings as the API has them, by path."""
    found: dict[str, JsonValue] = {}
    for name, value in settings.items():
        if name in _OBJECTS:
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            found[name] = value
    return found


def _completed(found: dict[str, JsonValue]) -> Declared:
    """What was declared with what follows from it, as the service would have it."""
    if found.get(_INTERVALS):
        found.setdefault(_KIND, str(Backoff.INTERVALS))
        found.setdefault(_RETRIES, len(found[_INTERVALS]))
    elif _KIND in found:
        found[_INTERVALS] = []
    if found.get(_RATE):
        rate = found[_RATE]
        usual = {"interval": 1, "interval_unit": str(IntervalUnit.SECONDS)}
        found[_RATE] = {"max_tokens": rate["max_tokens"], **usual, **rate}
    return found


def _check_name(queue: str, path: str) -> None:
    if path in _FIELDS or path == _PAUSED:
        return
    outer, dot, inner = path.partition(".")
    known = {one.partition(".")[0]: None for one in _FIELDS}
    if not dot:
        raise TypeError(unknown(path, f"queue {queue}", list(known)))
    inside = [one.partition(".")[2] for one in _FIELDS if one.startswith(f"{outer}.")]
    raise TypeError(unknown(inner, f"{outer} of queue {queue}", inside))


def _refused(queue: str, faults: Sequence[FieldError]) -> InvalidRequest:
    error = all_wrong(faults)
    return InvalidRequest(f"queue {queue}: {error.detail}", errors=error.errors)


def _plain(value: object) -> JsonValue:
    """*value* without enums and dataclasses; what JSON has no form for stays, and is refused."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError):
        return value


# -------------------------------------------------------------------------------------- the fields


def _number(bounds: limits.Bounds, *, whole: bool = False) -> Fault:
    unit = "" if whole else "seconds"
    return partial(limits.number_fault, bounds=bounds, whole=whole, unit=unit)


def _one_of(*words: str) -> Fault:
    def fault(value: object) -> str | None:
        return None if value in words else f"must be one of {', '.join(words)}, not {value!r:.140}"

    return fault


def _yes_or_no(value: object) -> str | None:
    return None if isinstance(value, bool) else f"must be True or False, not {value!r:.140}"


def _expiry(value: object) -> str | None:
    if value == 0 and not isinstance(value, bool):
        return None
    fault = limits.number_fault(value, limits.EXPIRES_SECONDS, unit="seconds")
    return fault and f"{fault}; 0 is never"


def _intervals(value: object) -> str | None:
    if not isinstance(value, list):
        return f"must be a list of seconds, not {value!r:.140}"
    if len(value) > limits.INTERVALS[1]:
        return f"must have at most {limits.INTERVALS[1]} entries; it has {len(value)}"
    faults = (
        limits.number_fault(each, limits.RETRY_DELAY_SECONDS, unit="seconds") for each in value
    )
    return next(filter(None, faults), None)


def _rate(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {"max_tokens"} <= value.keys() <= _RATE_FIELDS.keys():
        return f"must be None or have max_tokens, interval and interval_unit, not {value!r:.140}"
    faults = ((name, _RATE_FIELDS[name](one)) for name, one in value.items())
    return next((f"{name} {fault}" for name, fault in faults if fault), None)


_RATE_FIELDS: Final[Mapping[str, Fault]] = {
    "max_tokens": _number((1, limits.COUNT[1]), whole=True),
    "interval": _number((1, limits.INTERVAL_UNITS), whole=True),
    "interval_unit": _one_of(*IntervalUnit),
}

_FIELDS: Final[Mapping[str, Fault]] = {
    "description": partial(limits.text_fault, most=limits.DESCRIPTION_BYTES),
    "keepalive_timeout_in_seconds": _number(limits.KEEPALIVE_SECONDS),
    "expires_in_seconds": _expiry,
    _KIND: _one_of(*Backoff),
    _RETRIES: _number(limits.MAX_RETRIES, whole=True),
    "retry_strategy.base_seconds": _number(limits.BASE_SECONDS),
    "retry_strategy.max_delay_seconds": _number(limits.RETRY_DELAY_SECONDS),
    "retry_strategy.jitter": partial(limits.number_fault, bounds=limits.JITTER),
    _INTERVALS: _intervals,
    "dequeuing_settings.max_inflight_tasks": _number(limits.INFLIGHT, whole=True),
    _RATE: _rate,
    "dead_letter_queue_config.enable": _yes_or_no,
    "dead_letter_queue_config.retention_period_in_seconds": _number(limits.RETENTION_SECONDS),
    "dead_letter_queue_config.max_size": _number(limits.COUNT, whole=True),
    "history_retention_in_seconds": _number(limits.RETENTION_SECONDS),
    "shards": _number(limits.SHARDS, whole=True),
}
"""Every setting that an app may declare, and what is wrong with a value of it."""

_OBJECTS: Final = frozenset(path.partition(".")[0] for path in _FIELDS if "." in path)
