"""The options of the formats: one row each, from which they are read, refused and documented.

Spark hands options over as texts.  An error names the option and its limit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import NAME_RE, number_fault, pattern_fault
from headrace.domain.retry import Seconds

_IGNORED: Final = frozenset({"path", "checkpointlocation", "queryname"})  # Spark's own
_FLAGS: Final = {"true": True, "false": False}
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class SourceOption:
    """One option: *parse* returns the value of its text, or raises ValueError with the limit.

    Without a *default* it is None where it is not given, unless it is *required*.  *what* is its
    line in the docs.
    """

    name: str
    parse: Callable[[str], Any]
    what: str
    default: Any = None
    required: bool = False


def parsed(rows: Sequence[SourceOption], given: Mapping[str, str], *, of: str) -> dict[str, Any]:
    """Return the value of each of *rows*, by name, as *given* to the format *of*.

    Raises InvalidRequest that names every option that is wrong, missing or unknown.
    """
    texts = {name.lower(): text for name, text in given.items()}
    values: dict[str, Any] = {}
    wrong: list[FieldError] = []
    for row in rows:
        text = texts.pop(row.name, None)
        values[row.name] = row.default
        if text is None:
            if row.required:
                wrong.append(FieldError(row.name, "must be given"))
            continue
        try:
            values[row.name] = row.parse(text)
        except ValueError as error:
            wrong.append(FieldError(row.name, str(error)))
    known = ", ".join(row.name for row in rows)
    unknown = f"is no option of {of}, which has {known}"
    wrong += [FieldError(name, unknown) for name in sorted(texts.keys() - _IGNORED)]
    if wrong:
        raise refused(wrong, of=of)
    return values


def refused(
    wrong: Sequence[FieldError], *, of: str, columns: Sequence[FieldError] = ()
) -> InvalidRequest:
    """Return the error that says what is wrong with the options of *of*, and with its *columns*."""
    problems = [f"option {one.field} {one.message}" for one in wrong]
    problems += [f"column {one.field} {one.message}" for one in columns]
    return InvalidRequest(f"{of}: {'; '.join(problems)}", errors=[*wrong, *columns])


def queue_name(text: str) -> str:
    """Parse the name of a queue."""
    fault = pattern_fault(text, NAME_RE)
    if fault:
        raise ValueError(fault)
    return text


def word(text: str) -> str:
    """Parse a text that must not be empty."""
    if not text.strip():
        message = "must not be empty"
        raise ValueError(message)
    return text


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of a whole number from *low* to *high*, both included."""
    return _between(int, low, high)


def number(low: float, high: float) -> Callable[[str], Seconds]:
    """A parser of a number from *low* to *high*, both included, fractions allowed."""
    return _between(float, low, high)


def _between(read: Callable[[str], _Number], low: float, high: float) -> Callable[[str], _Number]:
    def parse(text: str) -> _Number:
        value: _Number | str = text
        with suppress(ValueError):
            value = read(text)
        fault = number_fault(value, (low, high), whole=read is int)
        if fault or isinstance(value, str):
            raise ValueError(fault)
        return value

    return parse


def choice(*words: str) -> Callable[[str], str]:
    """A parser of one of *words*, upper or lower case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            message = f"must be one of {', '.join(words)}, not {text!r}"
            raise ValueError(message)
        return text.lower()

    return parse


def flag(text: str) -> bool:
    """Parse true or false."""
    if text.lower() not in _FLAGS:
        message = f"must be true or false, not {text!r}"
        raise ValueError(message)
    return _FLAGS[text.lower()]


def table(rows: Iterable[SourceOption]) -> str:
    """Return *rows* as a table in Markdown, which the docs show."""
    lines = ["| option | default | means |", "|---|---|---|"]
    for row in rows:
        default = "required" if row.required else "" if row.default is None else f"`{row.default}`"
        lines.append(f"| `{row.name}` | {default} | {row.what} |")
    return "\n".join(lines)
