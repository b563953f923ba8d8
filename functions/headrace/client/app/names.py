"""The default name of a task: the module and the function."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_PROGRAMS: Final = ("__main__", "__mp_main__")  # the second in a process spawned by the first


def name_of(function: Callable[..., Any]) -> str:
    """Return ``module.function``.  Raises TypeError for what has no name.

    For a module run as a program it is the name that others import it by, so that a task
    enqueued by ``python mail.py`` is known to ``headrace work mail:app``.
    """
    if not hasattr(function, "__qualname__"):
        raise TypeError(f"{function!r} is no function, so it cannot be a task")
    module: str = function.__module__
    if module in _PROGRAMS:
        module = _importable_name(sys.modules.get(module)) or module
    inner: str = function.__qualname__.replace("<locals>.", "")
    return f"{module.removesuffix('.__main__')}.{inner}"


def _importable_name(program: ModuleType | None) -> str | None:
    spec = getattr(program, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return name
    file = getattr(program, "__file__", None)
    return Path(file).stem if file else None
