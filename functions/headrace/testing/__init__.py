"""Tools for tests of programs that use Headrace: a service in memory, a clock, inline tasks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.testing.attempts import Attempt, Ran
    from headrace.testing.clock import ManualClock
    from headrace.testing.inlining import Inline, TaskDied, inline
    from headrace.testing.service import MemoryService

__all__ = [
    "Attempt",
    "Inline",
    "ManualClock",
    "MemoryService",
    "Ran",
    "TaskDied",
    "inline",
]

_HOMES: Final = {
    "Attempt": "attempts",
    "Inline": "inlining",
    "ManualClock": "clock",
    "MemoryService": "service",
    "Ran": "attempts",
    "TaskDied": "inlining",
    "inline": "inlining",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
    """Import a name on first use, because pytest loads this package for every test run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
