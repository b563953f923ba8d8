"""A retry strategy as fields: of a queue, where it must say something, or of a schedule."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from console.chalicelib.forms import Errors
from console.chalicelib.parts import Field, Option
from headrace.domain import limits
from headrace.domain.retry import Backoff, RetryStrategy, Seconds

_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """One field; ``options`` are values with what they mean."""

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
            options=options, width=self.width,
        )  # fmt: skip


KINDS: Final = (
    (Backoff.EXPONENTIAL.value, "exponential: base · 2ⁿ⁻¹"),
    (Backoff.LINEAR.value, "linear: base · n"),
    (Backoff.QUADRATIC.value, "quadratic: base · n²"),
    (Backoff.FIXED.value, "fixed: base"),
    (Backoff.INTERVALS.value, "a list of waits"),
)

RETRIES: Final = (
    Setting("retry_kind", "Backoff", kind="select", options=KINDS),
    Setting("max_retries", "Retries", "0 is none."),
    Setting("base_seconds", "Base, seconds"),
    Setting("max_delay", "Longest wait, seconds"),
    Setting("jitter", "Jitter, 0 to 1", "0.1 is 10 % more or less."),
    Setting("intervals", "Waits, seconds", "For a list of waits: 10, 60, 600", width="l"),
)


def text_of(value: float) -> str:
    """Return a number as it is typed."""
    return str(int(value)) if value == int(value) else str(value)


def retry_texts(retry: RetryStrategy) -> dict[str, str]:
    """Return the text of each field."""
    return {
        "retry_kind": retry.kind.value,
        "max_retries": str(retry.max_retries),
        "base_seconds": text_of(retry.base_seconds),
        "max_delay": text_of(retry.max_delay_seconds),
        "jitter": text_of(retry.jitter),
        "intervals": ", ".join(map(text_of, retry.intervals)),
    }


USUAL: Final = retry_texts(RetryStrategy())

OPTIONAL: Final = (
    replace(RETRIES[0], options=(("", "as the queue says"), *KINDS)),
    *(replace(one, hint=f"{one.hint} Empty: {USUAL[one.name]}.".strip()) for one in RETRIES[1:-1]),
    RETRIES[-1],
)
"""The fields where all may be empty, for a schedule that leaves it to its queue."""


def read_retry(texts: Mapping[str, str], errors: Errors) -> RetryStrategy:
    """Return the strategy that *texts* say; what is wrong goes to *errors*, by field.

    A list of waits says by itself how many retries there are.
    """
    kind = Backoff(choice(texts, "retry_kind", tuple(kind for kind, _ in KINDS), errors))
    intervals = _intervals(texts, errors)
    retries = whole(texts, "max_retries", limits.MAX_RETRIES, errors)
    listed = kind is Backoff.INTERVALS
    return RetryStrategy(
        kind=kind,
        max_retries=len(intervals) if listed else retries,
        base_seconds=number(texts, "base_seconds", limits.BASE_SECONDS, errors),
        max_delay_seconds=number(texts, "max_delay", limits.RETRY_DELAY_SECONDS, errors),
        jitter=float(number(texts, "jitter", (0, 1), errors)),
        intervals=intervals if listed else (),
    )


def number(
    texts: Mapping[str, str], name: str, within: tuple[float, float], errors: Errors
) -> Seconds:
    """Read a number that must be there."""
    low, high = within
    value = _read(texts[name])
    if value is None or not low <= value <= high:
        errors.add(name, f"must be a number from {text_of(low)} to {text_of(high)}")
        return low
    return value


def whole(texts: Mapping[str, str], name: str, within: tuple[int, int], errors: Errors) -> int:
    """Read a whole number that must be there."""
    if not texts[name]:
        errors.add(name, f"must be a whole number from {within[0]} to {within[1]}")
    return errors.whole(name, texts[name], within, default=within[0]) or within[0]


def choice(texts: Mapping[str, str], name: str, values: tuple[str, ...], errors: Errors) -> str:
    """Read one of *values*."""
    if texts[name] not in values:
        errors.add(name, f"must be one of {', '.join(values)}")
        return values[0]
    return texts[name]


def _intervals(texts: Mapping[str, str], errors: Errors) -> tuple[Seconds, ...]:
    least, most = limits.INTERVALS
    low, high = limits.RETRY_DELAY_SECONDS
    parts = [part.strip() for part in texts["intervals"].split(",") if part.strip()]
    found = [_read(part) for part in parts]
    right = [value for value in found if value is not None and low <= value <= high]
    if len(right) < len(parts) or len(parts) > most:
        errors.add("intervals", f"must be {least} to {most} numbers from {low} to {high}, "
                   "with commas between")  # fmt: skip
    elif texts["retry_kind"] == Backoff.INTERVALS and not parts:
        errors.add("intervals", f"must have {least} to {most} waits for a list of waits")
    return tuple(right)


def _read(text: str) -> Seconds | None:
    if not _NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)
