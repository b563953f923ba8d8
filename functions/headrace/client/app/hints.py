"""Words for those who write a name that is none: what they may have meant."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

ELSEWHERE: Final = {
    "delay": "say {0}.enqueue(…), or {0}.options(delay=…).enqueue(…)",
    "apply_async": "say {0}.options(delay=…).enqueue(…)",
    "send": "say {0}.enqueue(…)",
}
"""What other task queues call it, and what it is here."""


def named(function: F) -> F:
    """Let *function* say which of its options was meant by one that it does not have."""

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:  # noqa: ANN401 (as the function has them)
        try:
            return function(*args, **options)
        except TypeError:
            known = _options(function)
            for name in options:
                if name not in known:
                    raise TypeError(unknown(name, function.__name__, known)) from None
            raise

    return cast("F", checked)


def _options(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def unknown(name: str, of: str, known: list[str]) -> str:
    """The error message for an unknown option."""
    from difflib import get_close_matches  # noqa: PLC0415 (for mistakes only)

    near = get_close_matches(name, known, n=1)
    return f"{of} has no option {name}: " + (
        f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    )
