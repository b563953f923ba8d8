"""Find an app by name, and import the modules that have its tasks."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.client.app.app import App

_VARIABLE: Final = "app"
_MODULES: Final = ("app", "tasks")  # of a package, where its app may be


class AppNotFound(Exception):
    """A module has no app of this name; the text says what it has."""


def find_app(name: str) -> "tuple[str, App]":
    """Return the path ``module:variable`` of an app, and the app with all its tasks.

    *name* is that path, or a module alone: then the app is the variable ``app`` of the module, or
    its only app; for a package also that of its module ``app`` or ``tasks``.
    Raises AppNotFound, and what the import of a module raises.
    """
    module_name, colon, variable = name.partition(":")
    module = import_module(module_name)
    found = _named(module, variable) if colon else _only(module)
    if found is None:
        for inner in _MODULES if hasattr(module, "__path__") else ():
            if find_spec(f"{module_name}.{inner}") is not None:
                found = found or _only(import_module(f"{module_name}.{inner}"))
    if found is None:
        raise AppNotFound(f"{module_name} has no App")
    path, app = found
    app.import_tasks()
    return path, app


def _named(module: ModuleType, variable: str) -> "tuple[str, App]":
    from headrace.client.app.app import App  # noqa: PLC0415 (it imports this module)

    value: object = module
    for part in variable.split("."):
        if not hasattr(value, part):
            known = ", ".join(_apps(module))
            advice = f"its apps: {known}" if known else "it has no App"
            if not known and hasattr(module, "__path__"):
                advice += f": name its module that has one, as {module.__name__}.app:app"
            raise AppNotFound(f"{module.__name__} has no {variable}; {advice}")
        value = getattr(value, part)
    if not isinstance(value, App):
        raise AppNotFound(f"{module.__name__}:{variable} is no App but {type(value).__name__}")
    return f"{module.__name__}:{variable}", value


def _only(module: ModuleType) -> "tuple[str, App] | None":
    """Return the app of *module*; None if it has none.  Raises AppNotFound if it has several."""
    apps = _apps(module)
    if _VARIABLE not in apps and len({id(app) for app in apps.values()}) > 1:
        raise AppNotFound(
            f"{module.__name__} has several apps ({', '.join(apps)}): name one, "
            f"as {module.__name__}:{next(iter(apps))}"
        )
    variable = _VARIABLE if _VARIABLE in apps else next(iter(apps), None)
    return None if variable is None else (f"{module.__name__}:{variable}", apps[variable])


def _apps(module: ModuleType) -> "dict[str, App]":
    from headrace.client.app.app import App  # noqa: PLC0415 (it imports this module)

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def module_names(include: Iterable[str]) -> list[str]:
    """Return the modules of *include*.  Raises TypeError for a text instead of a list."""
    if isinstance(include, str):
        raise TypeError(f"include must be a list of modules, as [{include!r}]")
    return list(include)


def import_modules(names: Iterable[str], packages: Iterable[str]) -> None:
    """Import modules, and every module in *packages* whose name does not begin with ``_``.

    Raises ModuleNotFoundError, and what a module raises.
    """
    for name in names:
        import_module(name)
    for package in packages:
        for info in iter_modules(getattr(import_module(package), "__path__", ()), f"{package}."):
            if not info.name.rpartition(".")[2].startswith("_"):
                import_modules([info.name], [info.name] if info.ispkg else [])
