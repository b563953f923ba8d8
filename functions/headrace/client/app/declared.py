"""The queue settings that an app declares, checked where they are declared.

Names and types are those of ``QueueFields``, limits those of ``QueueSettings``.  What depends on
several settings, or on other queues, is left to the service.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import (
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from headrace.client.app.checks import all_wrong
from headrace.client.options import unknown
from headrace.client.queue_fields import QueueFields
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.indexing import fields_fault, read_field
from headrace.domain.push import Target
from headrace.domain.queue_settings import (
    AlertSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settings import Kind, Setting, declared_settings, own_settings
from headrace.wire.base import JsonValue

Settings: TypeAlias = dict[str, JsonValue]
"""Settings as the API has them; names that are left out keep their value in the service."""

_NULLABLE: Final[Mapping[str, type]] = {
    "dequeuing_settings.rate_limiting": RateLimiting,
    "priority": PrioritySettings,
    "target": Target,
    "alerts": AlertSettings,
}
_LIMITS: Final[Mapping[str, Setting]] = {
    **{".".join(one.path): one for one in declared_settings(QueueSettings)},
    **{f"{at}.{one.name}": one for at, shape in _NULLABLE.items() for one in own_settings(shape)},
}
_PAUSED: Final = "dequeuing_paused"


def declared(queue: str, settings: QueueFields) -> Settings:
    """Return *settings* as the API has them.

    Raises TypeError for an unknown name, InvalidRequest naming the queue and each wrong field.
    """
    found: Settings = _plain(settings)
    dequeuing = found.get("dequeuing_settings")
    if isinstance(dequeuing, dict) and not dequeuing.get(_PAUSED):
        dequeuing.pop(_PAUSED, None)  # a DequeuingSettings has it
    faults = [*_faults(queue, QueueFields, found)]
    if faults:
        error = all_wrong(faults)
        raise InvalidRequest(f"queue {queue}: {error.detail}", errors=error.errors)
    retry = settings.get("retry_strategy")
    if isinstance(retry, RetryStrategy) and retry.intervals:  # its number is of other kinds
        found["retry_strategy"]["max_retries"] = len(retry.intervals)
    return _completed(found)


def merged(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> Settings:
    """Return *old* with the settings of *new*; objects in them are merged too."""
    both = {**old, **new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            both[name] = value if name in ("weights", "headers") else merged(old[name], value)
    return both


def _completed(found: Settings) -> Settings:
    """Add the settings that follow from others, as the service derives them."""
    retry, target = found.get("retry_strategy") or {}, found.get("target") or {}
    if retry.get("intervals"):
        retry.setdefault("kind", str(Backoff.INTERVALS))
        retry.setdefault("max_retries", len(retry["intervals"]))
    elif "kind" in retry:
        retry["intervals"] = []
    for name, other in (("url", "lambda"), ("lambda", "url")):
        if target.get(name) is not None:
            target.setdefault(other, None)
    if found.get("indexed_fields"):
        found["indexed_fields"] = [read_field(field)[0] for field in found["indexed_fields"]]
    return found


def _plain(value: object) -> Any:  # noqa: ANN401 (whatever it is as JSON)
    """Return *value* without enums and dataclasses; what JSON has no form for stays as it is."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError):
        return value


# ---------------------------------------------------------------------------------------- checks


def _faults(
    queue: str, shape: type, found: Mapping[str, Any], at: str = ""
) -> Iterator[FieldError]:
    """Yield the faults of an object; *shape* is its TypedDict, *at* its path and a dot."""
    known = get_type_hints(shape)
    for name in found:
        if name not in known:
            of = f"{at[:-1]} of queue {queue}" if at else f"queue {queue}"
            raise TypeError(unknown(name, of, list(known)))
    for name in sorted(_required(shape) - found.keys()):
        yield FieldError(f"{at}{name}", "is required")
    for name, value in found.items():
        yield from _faults_of_field(queue, f"{at}{name}", known[name], value)


def _required(shape: type) -> frozenset[str]:
    required: frozenset[str] = shape.__required_keys__  # type: ignore[attr-defined]  # a TypedDict
    return required


def _faults_of_field(queue: str, path: str, hint: Any, value: Any) -> Iterator[FieldError]:  # noqa: ANN401
    parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    if value is None and type(None) in parts:
        return
    nested = next((one for one in parts if is_typeddict(one)), None)
    if nested is not None:
        if isinstance(value, dict):
            yield from _faults(queue, nested, value, f"{path}.")
        else:
            yield FieldError(path, f"must be a dict, not {value!r:.140}")
        return
    fault = _fault(path, parts, value)
    if fault:
        yield FieldError(path, fault)


def _fault(path: str, hints: Sequence[Any], value: Any) -> str | None:  # noqa: ANN401
    """Return the fault of a value that is not an object, or None."""
    if path.endswith(_PAUSED):
        return "is an operator's: run `headrace queue pause` instead"
    if path == "indexed_fields":
        texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return fields_fault(value) if texts else f"must be a list of texts, not {value!r:.140}"
    if path == "retry_strategy.intervals":
        return _intervals_fault(value)
    words = [word for hint in hints if get_origin(hint) is Literal for word in get_args(hint)]
    if words:
        return None if value in words else f"must be one of {', '.join(words)}, not {value!r:.140}"
    setting = _LIMITS.get(path)
    return None if setting is None else _limit_fault(setting, value)


def _intervals_fault(value: Any) -> str | None:  # noqa: ANN401
    if not isinstance(value, list) or len(value) > limits.INTERVALS[1]:
        return f"must be a list of at most {limits.INTERVALS[1]} times in seconds"
    check = partial(limits.number_fault, bounds=limits.RETRY_DELAY_SECONDS, unit="seconds")
    return next(filter(None, map(check, value)), None)


def _limit_fault(setting: Setting, value: Any) -> str | None:  # noqa: ANN401
    within, zero = setting.about.within, setting.about.zero
    match setting.kind:
        case Kind.TEXT:
            return limits.text_fault(value, most=int(within[1]), least=int(within[0]))
        case Kind.FLAG:
            return None if isinstance(value, bool) else f"must be True or False, not {value!r:.140}"
        case Kind.WORD:
            words = list(setting.words or ())
            return None if value in words else f"must be one of {', '.join(words)}"
    if zero and value == 0 and not isinstance(value, bool):
        return None
    whole = setting.kind is Kind.WHOLE
    unit = "seconds" if setting.kind is Kind.SECONDS else ""
    fault = limits.number_fault(value, within, whole=whole, unit=unit)
    return f"{fault}; 0 is {zero}" if fault and zero else fault
