"""Each setting of a queue as a field: its words, its text, and how that is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from console.chalicelib.forms import Errors
from headrace.domain import limits
from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy, Seconds

_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)
_INTERVAL: Final = (1, 86_400)


@dataclass(frozen=True, slots=True)
class Setting:
    """One field; ``options`` are values with what they mean."""

    name: str
    label: str
    hint: str = ""
    kind: str = "text"
    options: tuple[tuple[str, str], ...] = ()
    width: str = "m"


_KINDS: Final = (
    ("exponential", "exponential: base · 2ⁿ⁻¹"),
    ("linear", "linear: base · n"),
    ("quadratic", "quadratic: base · n²"),
    ("fixed", "fixed: base"),
    ("intervals", "a list of waits"),
)

GROUPS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    ("In general", (
        Setting("description", "Description", width="l"),
        Setting("keepalive", "Lease, seconds", "A silent worker loses the task."),
        Setting("expires", "Expires after, seconds", "From when it is due; 0 is never."),
        Setting("history", "History, seconds", "How long the succeeded are kept; 0 keeps none."),
        Setting("shards", "Shards", "1 keeps the order."),
    )),
    ("Retries", (
        Setting("retry_kind", "Backoff", kind="select", options=_KINDS),
        Setting("max_retries", "Retries", "0 is none."),
        Setting("base_seconds", "Base, seconds"),
        Setting("max_delay", "Longest wait, seconds"),
        Setting("jitter", "Jitter, 0 to 1", "0.1 is 10 % more or less."),
        Setting("intervals", "Waits, seconds", "For a list of waits: 10, 60, 600", width="l"),
    )),
    ("Deliveries", (
        Setting("max_inflight", "Most in flight", "0 is no limit."),
        Setting("rate_tokens", "Deliveries at most", "Empty is no limit."),
        Setting("rate_interval", "In how many"),
        Setting("rate_unit", "Of these", kind="select",
                options=tuple((unit.value, unit.value.lower()) for unit in IntervalUnit)),
    )),
    ("The dead", (
        Setting("dead_enable", "Keep the dead", kind="select",
                options=(("yes", "yes"), ("no", "no, they are gone"))),
        Setting("dead_retention", "How long, seconds"),
        Setting("dead_most", "How many at most", "0 is no limit."),
    )),
)  # fmt: skip

LABELS: Final = {one.name: one.label for _, settings in GROUPS for one in settings}


def texts_of(settings: QueueSettings) -> dict[str, str]:
    """Return the text of each field."""
    retry, dequeuing = settings.retry_strategy, settings.dequeuing_settings
    rate, dead = dequeuing.rate_limiting, settings.dead_letter_queue_config
    return {
        "description": settings.description,
        "keepalive": _text(settings.keepalive_timeout_in_seconds),
        "expires": _text(settings.expires_in_seconds),
        "history": _text(settings.history_retention_in_seconds),
        "shards": str(settings.shards),
        "retry_kind": retry.kind.value,
        "max_retries": str(retry.max_retries),
        "base_seconds": _text(retry.base_seconds),
        "max_delay": _text(retry.max_delay_seconds),
        "jitter": _text(retry.jitter),
        "intervals": ", ".join(map(_text, retry.intervals)),
        "max_inflight": str(dequeuing.max_inflight_tasks),
        "rate_tokens": str(rate.max_tokens) if rate else "",
        "rate_interval": str(rate.interval) if rate else "1",
        "rate_unit": rate.interval_unit.value if rate else IntervalUnit.SECONDS.value,
        "dead_enable": "yes" if dead.enable else "no",
        "dead_retention": _text(dead.retention_period_in_seconds),
        "dead_most": str(dead.max_size),
    }


def read_settings(texts: Mapping[str, str], old: QueueSettings, errors: Errors) -> QueueSettings:
    """Return *old* with what *texts* say; what is wrong goes to *errors*, by field."""

    def number(name: str, low: float, high: float) -> Seconds:
        text = texts[name]
        value = _read(text)
        if value is None or not low <= value <= high:
            errors.add(name, f"must be a number from {_text(low)} to {_text(high)}")
            return low
        return value

    def whole(name: str, within: tuple[int, int]) -> int:
        if not texts[name]:
            errors.add(name, f"must be a whole number from {within[0]} to {within[1]}")
        return errors.whole(name, texts[name], within, default=within[0]) or within[0]

    def choice(name: str, values: tuple[str, ...]) -> str:
        if texts[name] not in values:
            errors.add(name, f"must be one of {', '.join(values)}")
            return values[0]
        return texts[name]

    description = errors.text("description", texts["description"], limits.DESCRIPTION_BYTES)
    rate = None
    if texts["rate_tokens"]:
        unit = choice("rate_unit", tuple(unit.value for unit in IntervalUnit))
        rate = RateLimiting(
            whole("rate_tokens", (1, limits.COUNT[1])),
            whole("rate_interval", _INTERVAL),
            IntervalUnit(unit),
        )
    return replace(
        old,
        description=description or "",
        keepalive_timeout_in_seconds=number("keepalive", *limits.KEEPALIVE_SECONDS),
        expires_in_seconds=number("expires", 0, limits.EXPIRES_SECONDS[1]),
        retry_strategy=_retry(
            Backoff(choice("retry_kind", tuple(kind for kind, _ in _KINDS))),
            _intervals(texts, errors),
            RetryStrategy(
                max_retries=whole("max_retries", limits.MAX_RETRIES),
                base_seconds=number("base_seconds", *limits.BASE_SECONDS),
                max_delay_seconds=number("max_delay", *limits.RETRY_DELAY_SECONDS),
                jitter=float(number("jitter", 0, 1)),
            ),
        ),
        dequeuing_settings=DequeuingSettings(
            max_inflight_tasks=whole("max_inflight", limits.COUNT),
            rate_limiting=rate,
            dequeuing_paused=old.dequeuing_settings.dequeuing_paused,
        ),
        dead_letter_queue_config=DeadLetterConfig(
            enable=choice("dead_enable", ("yes", "no")) == "yes",
            retention_period_in_seconds=number("dead_retention", *limits.RETENTION_SECONDS),
            max_size=whole("dead_most", limits.COUNT),
        ),
        history_retention_in_seconds=number("history", *limits.RETENTION_SECONDS),
        shards=whole("shards", limits.SHARDS),
    )


def _retry(kind: Backoff, intervals: tuple[Seconds, ...], others: RetryStrategy) -> RetryStrategy:
    """Return the strategy: a list of waits says by itself how many retries there are."""
    if kind is not Backoff.INTERVALS:
        return replace(others, kind=kind)
    return replace(others, kind=kind, intervals=intervals, max_retries=len(intervals))


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


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
