"""The options of the formats: one row each, from which they are read, refused and documented.

Spark hands options over as texts.  An error names the option and its limit.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from headrace.domain.errors import FieldError, HeadraceError, InvalidRequest, NotFound
from headrace.domain.limits import LEASE_QUEUES, NAME_RE, number_fault, pattern_fault
from headrace.domain.retry import Seconds
from headrace.ops.shared.queues import QueueOperations

_IGNORED: Final = frozenset({"path", "checkpointlocation", "queryname"})  # Spark's own
_FLAGS: Final = {"true": True, "false": False}
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class SourceOption:
    """One option: *parse* returns the value of its text, or raises ValueError with the limit.

    An option that is not given has its *default*, unless it is *required*.  *what* is its line in
    the docs.
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
    unknown = f"is no option of {of}; its options are {known}"
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


def check_queues(
    queues: QueueOperations, named: Iterable[tuple[str, str | None]], *, of: str
) -> None:
    """Look up the queues *named* by pairs of option and name.

    Raises NotFound that names the options of the format *of* whose queues are missing.
    """
    wrong = []
    for option, name in named:
        try:
            if name is not None:
                queues.get(name)
        except NotFound as missing:
            wrong.append((name, FieldError(option, missing.detail or "")))
    if wrong:
        problems = "; ".join(f"option {one.field}: {one.message}" for _, one in wrong)
        how = f"Create it with: headrace queue create {wrong[0][0]}"
        raise NotFound(f"{of}: {problems}. {how}", errors=[one for _, one in wrong])


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let Spark show an error of ours as its one sentence, without a traceback.

    Spark's worker takes this from its environment, and ends with the error.
    """
    try:
        yield
    except HeadraceError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def queue_name(text: str) -> str:
    """Parse the name of a queue."""
    fault = pattern_fault(text, NAME_RE)
    if fault:
        raise ValueError(fault)
    return text


def queue_names(text: str) -> tuple[str, ...]:
    """Parse the names of queues, with commas."""
    names = tuple(queue_name(name.strip()) for name in text.split(","))
    if len(set(names)) < len(names):
        message = "must not name a queue twice"
        raise ValueError(message)
    if len(names) > LEASE_QUEUES:
        message = f"must name at most {LEASE_QUEUES} queues, not {len(names):,}"
        raise ValueError(message)
    return names


def queue_pattern(text: str) -> str:
    """Parse the name of queues in which ``*`` is any text and ``?`` any character."""
    if not text or pattern_fault(text.replace("*", "x").replace("?", "x"), NAME_RE):
        message = f"must be the name of queues with * and ?, such as tenant-*, not {text!r}"
        raise ValueError(message)
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


def instant(text: str) -> datetime:
    """Parse an instant of ISO 8601, in UTC if it names no offset."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        message = f"must be an instant such as 2026-01-31T09:30:00Z, not {text!r}"
        raise ValueError(message) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def table(rows: Iterable[SourceOption]) -> str:
    """Return *rows* as a table in Markdown, which the docs show."""
    lines = ["| option | default | means |", "|---|---|---|"]
    for row in rows:
        default = "required" if row.required else "" if row.default is None else f"`{row.default}`"
        lines.append(f"| `{row.name}` | {default} | {row.what} |")
    return "\n".join(lines)
