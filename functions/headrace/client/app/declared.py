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
from headrace.domain.fairness import GroupMode, OnDead
from headrace.domain.indexing import fields_fault, read_field
from headrace.domain.on_end import TYPES
from headrace.domain.push import Target, headers_faults
from headrace.domain.queue import IntervalUnit, PrioritySettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.wire.base import JsonValue

Declared: TypeAlias = Mapping[str, JsonValue]
"""Settings by path."""

Fault: TypeAlias = Callable[[Any], str | None]

_KIND: Final = "retry_strategy.kind"
_RETRIES: Final = "retry_strategy.max_retries"
_INTERVALS: Final = "retry_strategy.intervals"
_RATE: Final = "dequeuing_settings.rate_limiting"
_PRIORITY: Final = "priority"
_GROUPS: Final = "groups"
_TARGET: Final = "target"
_ON_END: Final = "on_end"
_ALERTS: Final = "alerts"
_INDEXED: Final = "indexed_fields"
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


def _complete_indexed(found: dict[str, JsonValue]) -> None:
    """Write fields as the service has them."""
    if found.get(_INDEXED):
        found[_INDEXED] = [read_field(field)[0] for field in found[_INDEXED]]


def _completed(found: dict[str, JsonValue]) -> Declared:
    """What was declared with what follows from it, as the service would have it."""
    if found.get(_INTERVALS):
        found.setdefault(_KIND, str(Backoff.INTERVALS))
        found.setdefault(_RETRIES, len(found[_INTERVALS]))
    elif _KIND in found:
        found[_INTERVALS] = []
    _complete_indexed(found)
    if found.get(_RATE):
        rate = found[_RATE]
        usual = {"interval": 1, "interval_unit": str(IntervalUnit.SECONDS)}
        found[_RATE] = {"max_tokens": rate["max_tokens"], **usual, **rate}
    if found.get(_PRIORITY) is not None:
        found[_PRIORITY] = msgspec.to_builtins(PrioritySettings()) | found[_PRIORITY]
    if found.get(_GROUPS) is not None:
        groups = {**_USUAL_GROUPS, **found[_GROUPS]}
        if groups[_MODE] == GroupMode.STRICT:
            groups[_ON_DEAD] = groups[_ON_DEAD] or str(OnDead.CONTINUE)
        found[_GROUPS] = groups
    if found.get(_TARGET) is not None:
        found[_TARGET] = {**_USUAL_TARGET, **found[_TARGET]}
    if found.get(_ON_END) is not None:
        found[_ON_END] = {"states": list(map(str, TYPES)), **found[_ON_END]}
    if found.get(_ALERTS) is not None:
        found[_ALERTS] = {**dict.fromkeys(_ALERT_LIMITS), **found[_ALERTS]}
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


def _priority(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not value.keys() <= {_AGING}:
        return f"must be None or have {_AGING}, not {value!r:.140}"
    fault = _number(limits.AGING_SECONDS)(value[_AGING]) if value else None
    return fault and f"{_AGING} {fault}"


def _groups(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {_MODE} <= value.keys() <= {
        _MODE,
        *_USUAL_GROUPS,
    }:
        optional = " and ".join(_USUAL_GROUPS)
        return f"must be None or have {_MODE} and perhaps {optional}, not {value!r:.140}"
    if fault := _order_fault(value[_MODE], value.get(_ON_DEAD)):
        return fault
    weights = value.get(_WEIGHTS, {})
    if not isinstance(weights, dict) or len(weights) > limits.WEIGHTS:
        return f"{_WEIGHTS} must be at most {limits.WEIGHTS} numbers by group key"
    if fault := _number(limits.GROUP_INFLIGHT, whole=True)(value.get(_GROUP_LIMIT, 0)):
        return f"{_GROUP_LIMIT} {fault}"
    least, most = limits.GROUP_KEY_BYTES
    faults = (
        f"{_WEIGHTS}.{key!s:.60} {fault}"
        for key, weight in weights.items()
        if (fault := limits.text_fault(key, most, least) or _number(limits.WEIGHT)(weight))
    )
    return next(faults, None)


def _order_fault(mode: object, on_dead: object) -> str | None:
    if fault := _one_of(*GroupMode)(mode):
        return f"{_MODE} {fault}"
    if on_dead is None:
        return None
    if mode != GroupMode.STRICT:
        return f"{_ON_DEAD} must be left out unless {_MODE} is strict"
    fault = _one_of(*OnDead)(on_dead)
    return fault and f"{_ON_DEAD} {fault}"


def _target(value: object) -> str | None:
    if value is None:
        return None
    known = _USUAL_TARGET
    if not isinstance(value, dict) or not value.keys() <= known.keys():
        return f"must be None or have {', '.join(known)}, not {value!r:.140}"
    if (value.get("url") is None) == (value.get("lambda") is None):
        return "must have either url or lambda"
    faults = {name: _TARGET_FIELDS[name](one) for name, one in value.items() if one is not None}
    return next((f"{name} {fault}" for name, fault in faults.items() if fault), None)


def _target_headers(value: object) -> str | None:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        return f"must be names and values, not {value!r:.140}"
    return next((f"{name or ''} {fault}" for name, fault in headers_faults(value)), None)


def _on_end(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {"queue"} <= value.keys() <= {"queue", "states"}:
        return f"must be None or have queue and perhaps states, not {value!r:.140}"
    if fault := limits.pattern_fault(value["queue"], limits.NAME_RE):
        return f"queue {fault}"
    states, known = value.get("states", list(TYPES)), tuple(TYPES)
    if not isinstance(states, list | tuple) or not states or len(states) > len(known):
        return f"states must be some of {', '.join(known)}"
    return next((f"states {fault}" for one in states if (fault := _one_of(*known)(one))), None)


def _alerts(value: object) -> str | None:
    if value is None:
        return None
    known = ", ".join(_ALERT_LIMITS)
    if not isinstance(value, dict) or not {"queue"} <= value.keys() <= {"queue", *_ALERT_LIMITS}:
        return f"must be None or have queue and some of {known}, not {value!r:.140}"
    if fault := limits.pattern_fault(value["queue"], limits.NAME_RE):
        return f"queue {fault}"
    given = {name: value[name] for name in _ALERT_LIMITS if value.get(name) is not None}
    if not given:
        return f"must have at least one of {known}"
    faults = ((name, _ALERT_LIMITS[name](one)) for name, one in given.items())
    return next((f"{name} {fault}" for name, fault in faults if fault), None)


def _indexed(value: object) -> str | None:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return f"must be a list of tags and payload paths, not {value!r:.140}"
    return fields_fault(value)


_ALERT_LIMITS: Final[Mapping[str, Fault]] = {
    "oldest_ready_seconds": _number(limits.ALERT_AGE_SECONDS),
    "dead_per_minute": _number(limits.ALERT_DEAD, whole=True),
    "no_workers_for_seconds": _number(limits.ALERT_SILENCE_SECONDS),
}
_MODE: Final = "mode"
_WEIGHTS: Final = "weights"
_GROUP_LIMIT: Final = "max_inflight_per_group"
_ON_DEAD: Final = "on_dead"
_USUAL_GROUPS: Final[Mapping[str, JsonValue]] = {_WEIGHTS: {}, _GROUP_LIMIT: 0, _ON_DEAD: None}
_AGING: Final = "aging_in_seconds"
_USUAL_TARGET: Final[Mapping[str, JsonValue]] = {
    "url": None,
    "lambda": None,
    "timeout_in_seconds": Target().timeout_in_seconds,
    "max_concurrency": Target().max_concurrency,
    "headers": {},
}
_TARGET_FIELDS: Final[Mapping[str, Fault]] = {
    "url": partial(limits.text_fault, most=limits.TARGET_URL_BYTES, least=1),
    "lambda": partial(limits.text_fault, most=limits.TARGET_URL_BYTES, least=1),
    "timeout_in_seconds": _number(limits.TARGET_TIMEOUT_SECONDS),
    "max_concurrency": _number(limits.TARGET_CONCURRENCY, whole=True),
    "headers": _target_headers,
}
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
    _PRIORITY: _priority,
    _GROUPS: _groups,
    _TARGET: _target,
    _ON_END: _on_end,
    _ALERTS: _alerts,
    _INDEXED: _indexed,
}
"""Every setting that an app may declare, and what is wrong with a value of it."""

_OBJECTS: Final = frozenset(path.partition(".")[0] for path in _FIELDS if "." in path)
