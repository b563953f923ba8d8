"""A task function as it is read: its default name, and its arguments, checked on both sides.

They travel as JSON, so both sides ask the same question: does what JSON makes of this value fit
the parameter's type hint, strictly?  ``"5"`` is no ``int``.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeAlias, get_type_hints

import msgspec

from headrace.client.app.checks import all_wrong
from headrace.client.app.context import Context
from headrace.client.app.options import CallOptions
from headrace.client.codec import PLAIN
from headrace.domain.errors import FieldError
from headrace.domain.values import convert, decoder

TypeHint: TypeAlias = Any
"""The type hint of a parameter: not only a class, so it has no narrower type."""

PROGRAM: Final = "__main__"
_PROGRAMS: Final = (PROGRAM, "__mp_main__")  # the second in a process spawned by the first
_PLACE: Final = re.compile(r"(?:`key` in )?`\$(.*)`", re.DOTALL)
_SHOWN: Final = 300  # characters of what is wrong with an argument: msgspec quotes the whole value
_PARTS: Final = ("type", "types", "fields", "item_type", "item_types", "key_type", "value_type")
_JSON: Final = (dict, list, str, int, float, bool, type(None), msgspec.UnsetType)
_CANNOT_TRAVEL: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and arguments travel by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments, and each needs a name",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name, and each needs a type to check",
}


def is_same_function(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Return whether *new* is *old*, declared again as notebooks do."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def name_of(function: Callable[..., Any]) -> str:
    """Return ``module.function``.  Raises TypeError for what has no name.

    For a module run as a program it is the name that others import it by, so that a task
    enqueued by ``python mail.py`` is known to ``headrace work mail:app``.
    """
    module: str | None = getattr(function, "__module__", None)
    if module is None or not hasattr(function, "__qualname__"):  # as of `[].append`
        raise TypeError(f"{function!r} is no function, so it cannot be a task")
    if module in _PROGRAMS:
        module = _importable_name(sys.modules.get(module)) or module
    inner: str = function.__qualname__.replace("<locals>.", "")
    return f"{module.removesuffix('.__main__')}.{inner}"


def cannot_be_imported(name: str) -> bool:
    """Whether a function of this name is in a program that is no file: typed, piped, or ``-c``."""
    return name.startswith(f"{PROGRAM}.")


def _importable_name(program: ModuleType | None) -> str | None:
    spec = getattr(program, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return name
    file = getattr(program, "__file__", None)
    return Path(file).stem if file and not file.startswith("<") else None  # <stdin>


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function, without its ``Context``.

    ``hints`` has every argument in order, ``positional`` the arguments that need no name,
    ``defaults`` the optional arguments; ``context`` names the parameter that gets the context.
    ``result`` is the hint of the result, or Any if only checkers know it or JSON has no such type.
    """

    function: str
    hints: Mapping[str, Any]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    context: str | None
    result: Any = Any

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Signature":
        """Read the signature of *function*.  Raises TypeError for what cannot be a task."""
        title = getattr(function, "__qualname__", repr(function))
        if not inspect.isfunction(inspect.unwrap(function)):
            raise TypeError(f"{title} is no function, so it cannot be a task")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{title} has a yield in it; a task returns its result")
        _no_method(function, title)
        known = _hints(function, title)
        hints: dict[str, Any] = {}
        positional: list[str] = []
        defaults: dict[str, Any] = {}
        contexts: list[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in _CANNOT_TRAVEL:
                raise TypeError(f"{title}: {parameter} {_CANNOT_TRAVEL[parameter.kind]}")
            hint = known.get(name, Any)
            if hint is Context:
                contexts.append(name)
                continue
            hints[name] = _checkable(hint, name_of(function), name)
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                positional.append(name)
            if parameter.default is not inspect.Parameter.empty:
                defaults[name] = parameter.default
        if len(contexts) > 1:
            raise TypeError(f"{title} asks for the Context twice: {', '.join(contexts)}")
        context = contexts[0] if contexts else None
        return cls(title, hints, tuple(positional), defaults, context, _returned(function))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Give every argument its name.

        Raises InvalidRequest naming what is unknown, missing or given twice.
        """
        given = dict(zip(self.positional, args, strict=False))
        errors = []
        if len(args) > len(self.positional):
            most = len(self.positional)
            errors.append(
                FieldError("args", f"has {len(args)} without a name; {self} takes {most}")
            )
        twice = [name for name in given if name in kwargs]
        errors += [FieldError(f"args.{name}", "is given twice") for name in twice]
        given.update(kwargs)
        errors += self._misfits(given)
        if errors:
            raise all_wrong(errors)
        return given

    def plain(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return named arguments as JSON has them.

        Raises InvalidRequest naming each that does not fit its type hint or JSON.
        """
        made = {}
        errors = []
        for name, value in given.items():
            try:
                _fitting(value, self.hints[name])
                made[name] = msgspec.to_builtins(value, str_keys=True)
                _fitting(made[name], self.hints[name])
            except msgspec.ValidationError as error:
                errors.append(_mismatch(name, error))
            except (TypeError, ValueError, RecursionError) as error:
                errors.append(FieldError(f"args.{name}", f"cannot be written as JSON: {error}"))
        if not errors:
            errors = _not_json(made)
        if errors:
            raise all_wrong(errors)
        return made

    def typed(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that have travelled as the function wants them.

        Raises InvalidRequest naming each that does not fit.
        """
        errors = self._misfits(args)
        made = {}
        for name, value in args.items():
            if name not in self.hints:
                continue
            try:
                made[name] = _fitting(value, self.hints[name])
            except msgspec.ValidationError as error:
                errors.append(_mismatch(name, error))
        if errors:
            raise all_wrong(errors)
        return made

    def __str__(self) -> str:
        """Return the function and the names of its arguments, for messages."""
        return f"{self.function}({', '.join(self.hints)})"

    def _misfits(self, names: Mapping[str, Any]) -> list[FieldError]:
        if names.keys() == self.hints.keys():
            return []
        unknown = [
            FieldError(f"args.{name}", f"is no argument of {self}{_perhaps_option(name, self)}")
            for name in names
            if name not in self.hints
        ]
        missing = [
            FieldError(f"args.{name}", f"must be given: {self}{_perhaps_context(name, hint)}")
            for name, hint in self.hints.items()
            if name not in names and name not in self.defaults
        ]
        return unknown + missing


def _perhaps_option(name: str, of: Signature) -> str:
    """Return advice if *name* is an option of a call."""
    if name in CallOptions.__annotations__:
        return f"; as an option it is {of.function}.options({name}=…).enqueue(…)"
    return ""


def _perhaps_context(name: str, hint: TypeHint) -> str:
    """Return advice if *name* looks like a Context without its type hint."""
    if hint is Any and name in ("ctx", "context"):
        return f"; to get the context, write {name}: Context"
    return ""


def fitting(field: str, value: object, hint: TypeHint) -> Any:  # noqa: ANN401  as the hint says
    """Return a JSON *value* as *hint* wants it.  Raises InvalidRequest naming *field*."""
    try:
        return _fitting(value, hint)
    except msgspec.ValidationError as error:
        raise all_wrong([_mismatch("", error, root=field)]) from error


def _fitting(value: object, hint: TypeHint) -> object:
    return convert(value, hint, str_keys=True)


def _mismatch(name: str, error: msgspec.ValidationError, *, root: str = "args.") -> FieldError:
    what, _, place = str(error).rpartition(" - at ")
    found = _PLACE.fullmatch(place) if what else None
    path = "" if found is None else found[1]
    what = str(error) if found is None else what
    shown = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}… [cut]"
    return FieldError(f"{root}{name}{path}", shown[:1].lower() + shown[1:])


def _not_json(args: Mapping[str, Any]) -> list[FieldError]:
    """Name the arguments that hold NaN or the like."""
    errors = []
    for name, value in args.items():
        try:
            PLAIN.encode(value)
        except ValueError as error:
            errors.append(FieldError(f"args.{name}", f"cannot be written as JSON: {error}"))
    return errors


def _hints(function: Callable[..., Any], title: str) -> dict[str, Any]:
    """Return the type hints of the parameters; what is returned may be known to checkers only."""
    inner = inspect.unwrap(function)
    annotations = {name: hint for name, hint in inner.__annotations__.items() if name != "return"}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=inner.__globals__,
            include_extras=True,
        )
    except NameError as error:
        raise TypeError(
            f"{title}: {error}; the types of a task's arguments must be importable where it is "
            "declared, not only while types are checked"
        ) from error


def _returned(function: Callable[..., Any]) -> TypeHint:
    """Return the hint of what *function* returns, or Any."""
    inner = inspect.unwrap(function)
    annotations = {"return": inner.__annotations__.get("return", Any)}
    try:
        hint = get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=inner.__globals__,
            include_extras=True,
        )["return"]
        return _checkable(hint, name_of(function), "return")
    except (NameError, TypeError):
        return Any


def _no_method(function: Callable[..., Any], title: str) -> None:
    """Raise TypeError for a method: the object it belongs to cannot travel."""
    owner, _, _ = title.rpartition(".")
    first = next(iter(inspect.signature(function).parameters), None)
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise TypeError(
            f"{title} is a method, and its {first} cannot travel as JSON: declare a function"
        )


def _checkable(hint: TypeHint, function: str, name: str) -> TypeHint:
    try:
        decoder(hint)
        stuck = _cannot_travel(msgspec.inspect.type_info(hint), set())
    except TypeError as error:
        raise TypeError(f"{function}: argument {name}: {error}") from error
    if stuck is not None:
        has = "is" if stuck is hint else "has"
        instead = "; use str" if issubclass(stuck, PurePath) else ""
        raise TypeError(
            f"{function}: {name} {has} a {stuck.__qualname__}, which cannot travel as JSON{instead}"
        )
    return hint


def _cannot_travel(info: object, seen: set[int]) -> type | None:
    """Return the first class in a type that JSON has no value for, or None."""
    if isinstance(info, msgspec.inspect.CustomType):
        return None if _is_json(info.cls) else info.cls
    if isinstance(info, tuple):
        parts: Iterable[object] = info
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        parts = (getattr(info, field) for field in _PARTS if hasattr(info, field))
    else:
        return None
    return next((found for part in parts if (found := _cannot_travel(part, seen))), None)


def _is_json(kind: type) -> bool:
    """Whether values as JSON makes them are of a class, as all are of ``object``."""
    try:
        return any(issubclass(each, kind) for each in _JSON)
    except TypeError:  # a protocol that cannot be asked
        return False
