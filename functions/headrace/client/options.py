"""The check of keyword arguments: an unknown one is refused with the nearest right name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar, get_args

P = ParamSpec("P")
R = TypeVar("R")

_DELAY: Final = ("delay", "delay_in_seconds")
_DUE: Final = ("scheduled_at",)
_KEY: Final = ("dedupe_key",)
_LEASE: Final = ("lease_seconds", "keepalive_timeout_in_seconds")
_RETRY: Final = ("retry_strategy",)

_OTHER_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "at": _DUE,
    "autoretry_for": ("retry_on",),
    "backoff": _RETRY,
    "countdown": _DELAY,
    "dedupe": _KEY,
    "delay": _DELAY,
    "delay_in_seconds": _DELAY,
    "dont_autoretry_for": ("reject_on",),
    "eta": _DUE,
    "expires": ("expires_at", "expires_in_seconds"),
    "expires_at": ("expires",),
    "expires_in_seconds": ("expires",),
    "group": ("group_key",),
    "job_id": ("id",),
    "keepalive": _LEASE,
    "keepalive_timeout_in_seconds": _LEASE,
    "key": _KEY,
    "lease_seconds": _LEASE,
    "max_retries": _RETRY,
    "overwrite": ("overwrite_on_duplicate",),
    "overwrite_on_duplicate": ("overwrite",),
    "queue_name": ("queue",),
    "rate_limit": ("dequeuing_settings", "rate_limiting"),
    "retries": ("max_retries", "retry_strategy"),
    "retry_backoff": _RETRY,
    "soft_time_limit": ("soft_timeout",),
    "task_id": ("id",),
    "throws": ("reject_on",),
    "time_limit": ("timeout",),
    "unique_for": ("unique_for_seconds",),
}
"""Names that an option has in other task queues or in another place here, and those it has here."""


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Return *function* with a check: an unknown option raises TypeError with the nearest name."""

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        if options:
            check_options(function, options)
        return function(*args, **options)

    return checked


def check_options(function: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Raise TypeError if *given* has an option that *function* does not have."""
    known = option_names(function)
    for name in given:
        if name not in known:
            raise TypeError(unknown(name, function.__name__, [*known]))


def unknown(name: str, of: str, known: Sequence[str]) -> str:
    """Return the error message for an unknown option."""
    near = nearest(name, known)
    return f"{of} has no option {name}: " + (
        f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    )


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """Return the *known* options that *name* may mean, here or in another task queue."""
    near = [other for other in _OTHER_NAMES.get(name, ()) if other in known]
    return near or sorted(get_close_matches(name, known, n=2))


def no_attribute(
    owner: object, name: str, hints: Mapping[str, str], about: str = ""
) -> AttributeError:
    """Return the error for a missing attribute, with the hint for its name filled in."""
    hint = f": {hints[name].format(about)}" if name in hints else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}")


_NAMED: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@cache
def option_names(function: Callable[..., Any]) -> AbstractSet[str]:
    """Return the names of the options that *function* has, in their order."""
    names: dict[str, None] = {}
    for name, each in inspect.signature(function).parameters.items():
        if each.kind in _NAMED and name != "self":
            names[name] = None
        elif each.kind is inspect.Parameter.VAR_KEYWORD:  # annotated as Unpack of a TypedDict
            names |= dict.fromkeys(get_args(each.annotation)[0].__annotations__)
    return names.keys()
