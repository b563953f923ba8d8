"""How queue settings are declared, and how the API, SDK, CLI and console read the declarations.

A setting is a field of ``QueueSettings`` or of a dataclass in it.  Its annotation, made by
``setting``, has its title, its help and its limits; type and default are those of the field.
"""

import math
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from headrace.domain.limits import Bounds


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
        """The limits, and 0 if 0 has a meaning."""
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
) -> About:
    """Return the annotation of a setting, see ``About``.

    msgspec does not know it, which is intended: stored settings, and settings in answers of
    another version of the service, are read whatever their limits were.
    """
    return About(title, help_, within, short, zero)


@cache
def declared_settings(shape: type) -> tuple[Setting, ...]:
    """Return the settings that *shape*, a dataclass, and the dataclasses in it declare.

    Objects that may be null are left out, and so are fields that ``setting`` does not annotate.
    """
    return tuple(_settings(shape, ()))


def own_settings(shape: type) -> tuple[Setting, ...]:
    """Return the settings of *shape* itself, not those of the dataclasses in it."""
    return tuple(one for one in declared_settings(shape) if len(one.path) == 1)


_KINDS: Final[dict[type, Kind]] = {bool: Kind.FLAG, str: Kind.TEXT, int: Kind.WHOLE}


def _settings(shape: Any, path: tuple[str, ...]) -> list[Setting]:  # noqa: ANN401 (a dataclass)
    found: list[Setting] = []
    hints = get_type_hints(shape, include_extras=True)
    for field in fields(shape):
        hint, here = hints[field.name], (*path, field.name)
        if is_dataclass(hint):
            found += _settings(hint, here)
        for about in getattr(hint, "__metadata__", ()):
            found.append(_setting(here, field, hint.__origin__, about))
    return found


def _setting(path: tuple[str, ...], field: Field[Any], hint: Any, about: About) -> Setting:  # noqa: ANN401
    types = get_args(hint) or (hint,)
    words = types[0] if issubclass(types[0], StrEnum) else None
    if float in types:
        kind = Kind.SECONDS if path[-1].endswith("_seconds") else Kind.NUMBER
    else:
        kind = Kind.WORD if words else _KINDS[types[0]]
    required = field.default is MISSING
    default = None if required else field.default
    return Setting(path, kind, about, default, required, type(None) in types, words)
