"""Read the values of forms within the limits of the contract, and collect errors by field."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from headrace.domain import limits, times
from headrace.domain.errors import FieldError, HeadraceError, InvalidRequest
from headrace.domain.retry import Seconds
from headrace.domain.task import Priority
from headrace.domain.texts import QUOTED
from headrace.ops.shared.audit import checked_reason

W = TypeVar("W", bound=StrEnum)
D = TypeVar("D")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_OURS: Final = re.compile(r"[0-9]{1,9}")
_TAG: Final = re.compile(
    rf'(?P<key>{QUOTED}\s*+|(?!")[^,=]++)=\s*+(?P<value>{QUOTED}\s*+|(?!")[^,]*+)(?:,[\s,]*+|\Z)'
)
_TIME_FORMS: Final = ("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


@dataclass(slots=True)
class FormErrors:
    """The errors of a form, by field."""

    found: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, name: str, message: str) -> None:
        """Add an error to a field that has none yet."""
        self.found.setdefault(name, message)

    def take(self, error: HeadraceError, *, otherwise: str) -> None:
        """Add the errors of a use case; one without a field goes to *otherwise*."""
        for wrong in error.errors or (FieldError(otherwise, error.detail),):
            self.add(wrong.field, wrong.message)

    def of(self, name: str) -> str:
        """Return the error of a field; empty for none."""
        return self.found.get(name, "")

    def whole(self, name: str, text: str, within: tuple[int, int]) -> int | None:
        """Read a whole number; None for an empty text."""
        if not text:
            return None
        value = int(text) if _WHOLE.fullmatch(text) else text
        fault = limits.number_fault(value, within, whole=True)
        if fault:
            self.add(name, fault)
            return None
        return int(value)

    def length(
        self, name: str, text: str, within: limits.Bounds, *, whole: bool = False
    ) -> Seconds | None:
        """Read a length of time, as `times.read_duration` does; None for an empty text."""
        if not text.strip():
            return None
        fault = times.duration_fault(text, within, whole=whole)
        if fault:
            self.add(name, fault)
            return None
        return times.read_duration(text)

    def whole_seconds(self, name: str, text: str, within: limits.Bounds) -> int | None:
        """Read a length of time in whole seconds; None for an empty text."""
        found = self.length(name, text, within, whole=True)
        return None if found is None else int(found)

    def instant(self, name: str, text: str) -> datetime | None:
        """Read a date and time, taken as UTC."""
        for form in _TIME_FORMS:
            try:
                return datetime.strptime(text, form).replace(tzinfo=UTC)
            except ValueError:
                continue
        if text:
            self.add(name, "must be a date and time as 2026-11-21T08:00, in UTC")
        return None

    def text(self, name: str, text: str, most: int) -> str | None:
        """Read a text of at most *most* bytes; None for an empty text."""
        fault = limits.text_fault(text, most)
        if fault:
            self.add(name, fault)
            return None
        return text or None

    def payload(self, name: str, text: str) -> str:
        """Return JSON text exactly as typed."""
        fault = limits.json_fault(limits.utf8_bytes(text), limits.PAYLOAD_BYTES)
        if limits.reserved_task(text):
            fault = f"names a task that {limits.RESERVED_TASK}"
        try:
            limits.check_json(text)
            text.encode()
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            fault = fault or f"is not JSON: {error.msg.lower()} at {where}"
        except ValueError as error:
            fault = fault or f"is not JSON: {error}"
        except RecursionError:
            fault = fault or "is nested too deeply"
        if fault:
            self.add(name, fault)
        return text

    def reason(self, text: str) -> str:
        """Read the reason of an action."""
        try:
            return checked_reason(text)
        except InvalidRequest as error:
            self.take(error, otherwise="reason")
            return text

    def priority(self, name: str, text: str) -> Priority | None:
        """Read a priority; None for an empty text."""
        return self.one_of(name, text, Priority, None) if text else None

    def one_of(self, name: str, text: str, words: type[W], otherwise: D) -> W | D:
        """Read one of *words*; another text is an error, and returns *otherwise*."""
        if text not in [*words]:
            self.add(name, f"must be one of {', '.join(words)}")
            return otherwise
        return words(text)

    def name(self, name: str, text: str) -> None:
        """Check the name of a new thing."""
        if not limits.NAME_RE.fullmatch(text):
            self.add(name, limits.pattern_in_words(limits.NAME))

    def tags(self, name: str, text: str) -> Mapping[str, str]:
        """Read tags as `tags_text` writes them."""
        found: dict[str, str] = {}
        text, at = text.strip(", \t\r\n"), 0
        while at < len(text):
            pair = _TAG.match(text, at)
            key = _unquoted(pair["key"].strip()) if pair else ""
            if pair is None or not key:
                self.add(name, 'must be tags as key=value, with commas between; "a,b"="c=d"')
                break
            found[key] = _unquoted(pair["value"].strip())
            at = pair.end()
        for tag, fault in limits.tags_faults(found):
            self.add(name, fault if tag is None else f"{tag:.80} {fault}")
        return dict(sorted(found.items()))


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as ``key=value`` with commas between; ambiguous texts are quoted as in JSON."""
    return ", ".join(f"{_quoted(key)}={_quoted(value)}" for key, value in sorted(tags.items()))


def _quoted(word: str) -> str:
    plain = word == word.strip() and not any(sign in word for sign in ',="')
    return word if plain else json.dumps(word, ensure_ascii=False)


def _unquoted(word: str) -> str:
    return str(json.loads(word, strict=False)) if word.startswith('"') else word


NO_ERRORS: Final = FormErrors()
"""The errors of a form that is only shown."""


def number_of_ours(text: str, default: int) -> int:
    """Return a number that one of our pages put into a form or link; else *default*."""
    return int(text) if _OURS.fullmatch(text) else default


def pretty(text: str) -> str:
    """Return JSON with line breaks and indents; other text is returned unchanged.

    Values keep every character: numbers are not converted and not rounded.
    """
    try:
        return msgspec.json.format(str(text), indent=2)
    except (ValueError, RecursionError):
        return text
