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
from headrace.domain.indexing import fields_fault, read_field
from headrace.domain.push import Target, headers_faults
from headrace.domain.queue_settings import (
    TYPES,
    AlertSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
    Threshold,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settings import Kind, Setting, declared_settings, own_settings
from headrace.domain.task_groups import GroupMode, OnDead
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
        found[_RATE] = {"max_tokens": rate["max_tokens"], **_usual(RateLimiting), **rate}
    if found.get(_PRIORITY) is not None:
        found[_PRIORITY] = _usual(PrioritySettings) | found[_PRIORITY]
    if found.get(_GROUPS) is not None:
        groups = {**_USUAL_GROUPS, **found[_GROUPS]}
        if groups[_MODE] == GroupMode.STRICT:
            groups[_ON_DEAD] = groups[_ON_DEAD] or str(OnDead.CONTINUE)
        found[_GROUPS] = groups
    if found.get(_TARGET) is not None:
        found[_TARGET] = {
            "url": None,
            "lambda": None,
            "headers": {},
            **_usual(Target),
            **found[_TARGET],
        }
    if found.get(_ON_END) is not None:
        found[_ON_END] = {"states": list(map(str, TYPES)), **found[_ON_END]}
    if found.get(_ALERTS) is not None:
        found[_ALERTS] = {**_usual(AlertSettings), **found[_ALERTS]}
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


def _fault_of(setting: Setting) -> Fault:
    """Return the check of a value by the declaration of its setting."""
    within = setting.about.within
    match setting.kind:
        case Kind.TEXT:
            return partial(limits.text_fault, most=int(within[1]), least=int(within[0]))
        case Kind.FLAG:
            return _yes_or_no
        case Kind.WORD:
            return _one_of(*setting.words or ())
        case Kind.WHOLE:
            check = partial(limits.number_fault, bounds=within, whole=True)
        case Kind.NUMBER:
            check = partial(limits.number_fault, bounds=within)
        case _:
            check = partial(limits.number_fault, bounds=within, unit="seconds")
    if setting.within != within:
        return _or_zero(check, setting.about.zero)
    return _or_none(check) if setting.nullable else check


def _or_zero(check: Fault, zero: str) -> Fault:
    def fault(value: object) -> str | None:
        if value == 0 and not isinstance(value, bool):
            return None
        found = check(value)
        return found and f"{found}; 0 is {zero}"

    return fault


def _or_none(check: Fault) -> Fault:
    return lambda value: None if value is None else check(value)


def _object(shape: type, **others: Fault) -> Fault:
    """Return the check of an object with *others* and the settings of *shape*, or None."""
    settings = own_settings(shape)
    needed = {one.name for one in settings if one.required}
    checks = {**others, **{one.name: _fault_of(one) for one in settings}}

    def fault(value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, dict) or not needed <= value.keys() <= checks.keys():
            return f"must be None or have {', '.join(checks)}, not {value!r:.140}"
        faults = ((name, checks[name](one)) for name, one in value.items())
        return next((f"{name} {fault}" for name, fault in faults if fault), None)

    return fault


def _usual(shape: type) -> dict[str, JsonValue]:
    """Return the defaults of the settings of *shape*."""
    found = {one.name: one.default for one in own_settings(shape) if not one.required}
    return dict(_plain(found))


def _one_of(*words: str) -> Fault:
    def fault(value: object) -> str | None:
        return None if value in words else f"must be one of {', '.join(words)}, not {value!r:.140}"

    return fault


def _yes_or_no(value: object) -> str | None:
    return None if isinstance(value, bool) else f"must be True or False, not {value!r:.140}"


def _intervals(value: object) -> str | None:
    if not isinstance(value, list):
        return f"must be a list of seconds, not {value!r:.140}"
    if len(value) > limits.INTERVALS[1]:
        return f"must have at most {limits.INTERVALS[1]} entries; it has {len(value)}"
    faults = (
        limits.number_fault(each, limits.RETRY_DELAY_SECONDS, unit="seconds") for each in value
    )
    return next(filter(None, faults), None)


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
    limit = value.get(_GROUP_LIMIT, 0)
    if fault := limits.number_fault(limit, limits.GROUP_INFLIGHT, whole=True):
        return f"{_GROUP_LIMIT} {fault}"
    least, most = limits.GROUP_KEY_BYTES
    faults = (
        f"{_WEIGHTS}.{key!s:.60} {fault}"
        for key, weight in weights.items()
        if (fault := limits.text_fault(key, most, least) or _weight_fault(weight))
    )
    return next(faults, None)


def _weight_fault(weight: object) -> str | None:
    return limits.number_fault(weight, limits.WEIGHT)


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
    if isinstance(value, dict) and (value.get("url") is None) == (value.get("lambda") is None):
        return "must have either url or lambda"
    return _TARGET_FAULT(value)


def _address(value: object) -> str | None:
    return None if value is None else limits.text_fault(value, limits.TARGET_URL_BYTES, 1)


def _queue_name(value: object) -> str | None:
    return limits.pattern_fault(value, limits.NAME_RE)


def _headers(value: object) -> str | None:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        return f"must be names and values, not {value!r:.140}"
    return next((f"{name or ''} {fault}" for name, fault in headers_faults(value)), None)


def _on_end(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {"queue"} <= value.keys() <= {"queue", "states"}:
        return f"must be None or have queue and perhaps states, not {value!r:.140}"
    if fault := _queue_name(value["queue"]):
        return f"queue {fault}"
    states, known = value.get("states", list(TYPES)), tuple(TYPES)
    if not isinstance(states, list | tuple) or not states or len(states) > len(known):
        return f"states must be some of {', '.join(known)}"
    return next((f"states {fault}" for one in states if (fault := _one_of(*known)(one))), None)


def _alerts(value: object) -> str | None:
    if isinstance(value, dict):
        if "queue" not in value:
            return "must have queue, which is notified"
        if all(value.get(name) is None for name in Threshold):
            return f"must have at least one of {', '.join(Threshold)}"
    return _ALERTS_FAULT(value)


def _indexed(value: object) -> str | None:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return f"must be a list of tags and payload paths, not {value!r:.140}"
    return fields_fault(value)


_MODE: Final = "mode"
_WEIGHTS: Final = "weights"
_GROUP_LIMIT: Final = "max_inflight_per_group"
_ON_DEAD: Final = "on_dead"
_USUAL_GROUPS: Final[Mapping[str, JsonValue]] = {_WEIGHTS: {}, _GROUP_LIMIT: 0, _ON_DEAD: None}
_TARGET_FAULT: Final = _object(Target, url=_address, **{"lambda": _address}, headers=_headers)
_ALERTS_FAULT: Final = _object(AlertSettings, queue=_queue_name)

_FIELDS: Final[Mapping[str, Fault]] = {
    **{".".join(one.path): _fault_of(one) for one in declared_settings(QueueSettings)},
    _INTERVALS: _intervals,
    _RATE: _object(RateLimiting),
    _PRIORITY: _object(PrioritySettings),
    _GROUPS: _groups,
    _TARGET: _target,
    _ON_END: _on_end,
    _ALERTS: _alerts,
    _INDEXED: _indexed,
}
"""Every setting that an app may declare, and what is wrong with a value of it."""

_OBJECTS: Final = frozenset(path.partition(".")[0] for path in _FIELDS if "." in path)
