"""How queue settings are declared, and how the API, SDK, CLI and console read the declarations.

A setting is a field of ``QueueSettings`` or of a dataclass in it.  Its annotation, made by
``setting``, has its title, its help and its limits; type and default are those of the field.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from msgspec import NODEFAULT, Meta, inspect

from headrace.domain.limits import Bounds

_KEY: Final = "setting"


class Kind(StrEnum):
    """The type of a setting."""

    TEXT = "text"  #: limits are bytes of UTF-8
    FLAG = "flag"
    WORD = "word"  #: one of an enum
    WHOLE = "whole"
    NUMBER = "number"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class About:
    """What a declaration says besides type and default.

    ``short`` is the name of the CLI's option and of the console's form field; a setting without one
    is not shown there by the general code.  ``zero`` says in words what 0 means, also where 0 is
    below the limits.
    """

    title: str
    help: str
    within: Bounds
    short: str
    zero: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, at ``path`` in the API."""

    path: tuple[str, ...]
    kind: Kind
    about: About
    default: Any
    required: bool = False
    nullable: bool = False
    words: type[StrEnum] | None = None

    @property
    def name(self) -> str:
        """The name of the setting within its object."""
        return self.path[-1]

    @property
    def within(self) -> Bounds:
        """The limits, and 0 if it has a meaning of its own."""
        low, high = self.about.within
        return (0 if self.about.zero else low, high)

    @property
    def hint(self) -> str:
        """The help, with the meaning of 0."""
        return f"{self.about.help} 0: {self.about.zero}." if self.about.zero else self.about.help

    def value_in(self, settings: object) -> Any:  # noqa: ANN401 (of whatever type the setting has)
        """Return the value of the setting in *settings*, a ``QueueSettings``."""
        for name in self.path:
            settings = getattr(settings, name)
        return settings


def setting(
    title: str,
    help_: str,
    within: Bounds = (0, math.inf),
    *,
    short: str = "",
    zero: str = "",
) -> Meta:
    """Return the annotation of a setting.

    The limits are not msgspec's ``ge`` and ``le``: what is stored, and what another version of the
    service answers, is read whatever its limits were.
    """
    return Meta(extra={_KEY: About(title, help_, within, short, zero)})


@cache
def settings_of(shape: type) -> tuple[Setting, ...]:
    """Return the settings that *shape*, a dataclass, and the dataclasses in it declare.

    Objects that may be null are left out, and so are fields that ``setting`` does not annotate.
    """
    return tuple(_settings(inspect.type_info(shape), ()))


def own_settings(shape: type) -> tuple[Setting, ...]:
    """Return the settings of *shape* itself, not those of the dataclasses in it."""
    return tuple(one for one in settings_of(shape) if len(one.path) == 1)


def _settings(shape: inspect.Type, path: tuple[str, ...]) -> "list[Setting]":
    found: list[Setting] = []
    if not isinstance(shape, inspect.DataclassType):
        return found
    for field in shape.fields:
        here = (*path, field.encode_name)
        if isinstance(field.type, inspect.DataclassType):
            found += _settings(field.type, here)
        elif isinstance(field.type, inspect.Metadata) and _KEY in (field.type.extra or {}):
            found.append(_setting(here, field, field.type))
    return found


_KINDS: Final[Mapping[type[inspect.Type], Kind]] = {
    inspect.StrType: Kind.TEXT,
    inspect.BoolType: Kind.FLAG,
    inspect.EnumType: Kind.WORD,
    inspect.IntType: Kind.WHOLE,
}


def _setting(path: tuple[str, ...], field: inspect.Field, annotated: inspect.Metadata) -> Setting:
    inner = annotated.type
    types = inner.types if isinstance(inner, inspect.UnionType) else (inner,)
    if any(isinstance(one, inspect.FloatType) for one in types):
        kind = Kind.SECONDS if path[-1].endswith("_seconds") else Kind.NUMBER
    else:
        kind = _KINDS[type(types[0])]
    return Setting(
        path,
        kind,
        (annotated.extra or {})[_KEY],
        field.default if field.default is not NODEFAULT else None,
        required=field.required,
        nullable=any(isinstance(one, inspect.NoneType) for one in types),
        words=types[0].cls if isinstance(types[0], inspect.EnumType) else None,  # type: ignore[arg-type]
    )
