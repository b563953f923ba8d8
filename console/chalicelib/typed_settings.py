"""Fields of settings in forms: the text of a value, and the value of a text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.domain import limits, times
from headrace.domain.retry import Backoff, Seconds
from headrace.domain.settings import Kind, own_settings
from headrace.domain.settings import Setting as Declared

from .forms import FormErrors
from .parts import Field, Option

_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """One field; ``options`` are pairs of value and label."""

    name: str
    label: str
    hint: str = ""
    kind: str = "text"
    options: tuple[tuple[str, str], ...] = ()
    width: str = "m"

    def field(self, text: str, error: str = "") -> Field:
        """Return the field with *text* in it."""
        options = tuple(Option(value, label, value == text) for value, label in self.options)
        return Field(
            self.name, self.label, text, self.kind, self.hint, error,
            options=options, width=self.width, rows=3,
        )  # fmt: skip


def text_of(value: float) -> str:
    """Return a number as people type it."""
    return str(int(value)) if value == int(value) else str(value)


def rows_of(shape: type) -> tuple[Setting, ...]:
    """Return a field for each setting that *shape* declares with a short name."""
    return tuple(map(_row_of, declared_with_names(shape)))


def declared_with_names(shape: type) -> tuple[Declared, ...]:
    """Return the settings of *shape* that have a short name, which is that of their field."""
    return tuple(one for one in own_settings(shape) if one.about.short)


def _row_of(setting: Declared) -> Setting:
    about = setting.about
    if setting.kind is Kind.FLAG:
        options = (("yes", "yes"), ("no", "no"))
        return Setting(about.short, about.title, kind="select", options=options)
    if setting.words is not None:
        words = tuple((one.value, one.value.lower()) for one in setting.words)
        return Setting(about.short, about.title, kind="select", options=words)
    width = "l" if setting.kind is Kind.TEXT else "m"
    return Setting(about.short, about.title, setting.hint, width=width)


def texts_in(settings: object) -> dict[str, str]:
    """Return the texts of the settings with a short name, by field."""
    return {
        one.about.short: _text(one.kind, getattr(settings, one.name))
        for one in declared_with_names(type(settings))
    }


def _text(kind: Kind, value: Any) -> str:  # noqa: ANN401 (of whatever type the setting has)
    if value is None:
        return ""
    match kind:
        case Kind.SECONDS:
            return times.duration_text(value)
        case Kind.FLAG:
            return "yes" if value else "no"
        case Kind.TEXT | Kind.WORD:
            return str(value)
    return text_of(value)


@dataclass(frozen=True, slots=True)
class Typed:
    """The values of the form; errors are collected by field."""

    texts: Mapping[str, str]
    errors: FormErrors

    def number(self, name: str, within: tuple[float, float]) -> Seconds:
        """Read a required number."""
        text = self.texts[name]
        value = read_number(text)
        fault = limits.number_fault(text if value is None else value, within)
        if fault:
            self.errors.add(name, fault)
        return within[0] if fault or value is None else value

    def length(self, name: str, within: tuple[float, float]) -> Seconds:
        """Read a required length of time."""
        fault = times.duration_fault(self.texts[name], within)
        if fault:
            self.errors.add(name, fault)
        return within[0] if fault else times.read_duration(self.texts[name])

    def whole(self, name: str, within: tuple[int, int]) -> int:
        """Read a required whole number."""
        if not self.texts[name]:
            self.errors.add(name, str(limits.number_fault("", within, whole=True)))
        return self.errors.whole(name, self.texts[name], within) or within[0]

    def settings(self, shape: type) -> dict[str, Any]:
        """Read the settings of *shape* that have a field, by their names in the API."""
        return {one.name: self._setting(one) for one in declared_with_names(shape)}

    def _setting(self, setting: Declared) -> Any:  # noqa: ANN401 (of whatever type it has)
        name, (low, high) = setting.about.short, setting.within
        if setting.nullable and not self.texts[name]:
            return None
        if setting.words is not None:
            return setting.words(self.choice(name, tuple(setting.words)))
        match setting.kind:
            case Kind.TEXT:
                return self.errors.text(name, self.texts[name], int(high)) or ""
            case Kind.FLAG:
                return self.choice(name, ("yes", "no")) == "yes"
            case Kind.WHOLE:
                return self.whole(name, (int(low), int(high)))
        read = self.length if setting.kind is Kind.SECONDS else self.number
        return read(name, (low, high))

    def choice(self, name: str, values: tuple[str, ...]) -> str:
        """Read one of *values*."""
        if self.texts[name] not in values:
            self.errors.add(name, f"must be one of {', '.join(values)}")
            return values[0]
        return self.texts[name]

    def intervals(self) -> tuple[Seconds, ...]:
        """Read the list of waits, which the backoff `intervals` requires."""
        least, most = limits.INTERVALS
        low, high = limits.RETRY_DELAY_SECONDS
        parts = [part.strip() for part in self.texts["intervals"].split(",") if part.strip()]
        wrong = ""
        if len(parts) > most or any(times.duration_fault(part, (low, high)) for part in parts):
            wrong = (
                f"must be {least} to {most} lengths of time such as 10s, 1m, 10m, with commas "
                f"between, each from {times.duration_text(low)} to {times.duration_text(high)}"
            )
        elif self.texts["retry_kind"] == Backoff.INTERVALS and not parts:
            wrong = f"must have {least} to {most} waits for a list of waits"
        if wrong:
            self.errors.add("intervals", wrong)
            return ()
        return tuple(map(times.read_duration, parts))


def read_number(text: str) -> Seconds | None:
    """Return the number of *text*; None for another text."""
    if not _NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)
