"""The settings of a queue as form fields.

Schedules use the fields of retries alone, and may leave them empty.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.domain import limits, times
from headrace.domain.indexing import fields_fault, read_field
from headrace.domain.push import Target
from headrace.domain.queue_settings import (
    AlertSettings,
    DeadLetterConfig,
    DequeuingSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settings import Kind, declared_settings
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead
from headrace.domain.texts import QUOTED
from headrace.domain.times import duration_text

from .forms import FormErrors
from .push_fields import (
    ALERTS,
    ON_END,
    TARGET,
    alert_texts,
    push_texts,
    read_alerts,
    read_on_end,
    read_target,
)
from .typed_settings import Setting, Typed, read_number, rows_of, text_of, texts_in

KINDS: Final = (
    (Backoff.EXPONENTIAL.value, "exponential: base · 2ⁿ⁻¹"),
    (Backoff.LINEAR.value, "linear: base · n"),
    (Backoff.QUADRATIC.value, "quadratic: base · n²"),
    (Backoff.FIXED.value, "fixed: base"),
    (Backoff.INTERVALS.value, "a list of waits"),
)
RETRIES: Final = (
    Setting("retry_kind", "Backoff", kind="select", options=KINDS),
    *rows_of(RetryStrategy),
    Setting("intervals", "Waits", "For a list of waits: 10s, 1m, 10m", width="l"),
)


def retry_texts(retry: RetryStrategy) -> dict[str, str]:
    """Return the text of each field."""
    return {
        "retry_kind": retry.kind.value,
        **texts_in(retry),
        "intervals": ", ".join(map(duration_text, retry.intervals)),
    }


USUAL: Final = retry_texts(RetryStrategy())
OPTIONAL: Final = (
    replace(RETRIES[0], options=(("", "the queue's setting"), *KINDS)),
    *(replace(one, hint=f"{one.hint} Empty: {USUAL[one.name]}.".strip()) for one in RETRIES[1:-1]),
    RETRIES[-1],
)
"""The fields of a schedule; for an empty field the setting of the queue applies."""


def read_retry(texts: Mapping[str, str], errors: FormErrors) -> RetryStrategy:
    """Return the strategy in *texts*; add errors to *errors* by field.

    The length of a list of waits is the number of retries.
    """
    typed = Typed(texts, errors)
    kind = Backoff(typed.choice("retry_kind", tuple(kind for kind, _ in KINDS)))
    intervals = typed.intervals()
    retry = RetryStrategy(kind=kind, **typed.settings(RetryStrategy))
    if kind is Backoff.INTERVALS:
        return replace(retry, max_retries=len(intervals), intervals=intervals)
    return retry


GROUPS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    ("General", (
        *rows_of(QueueSettings),
        Setting("indexed_fields", "Indexed fields",
                "At most 3 tags and 3 payload paths: tag:tenant payload.order", width="l"),
    )),
    ("Retries", RETRIES),
    ("Deliveries", (
        *rows_of(DequeuingSettings),
        *(replace(one, hint=f"{one.hint} Empty: no limit.") if one.name == "rate_tokens" else one
          for one in rows_of(RateLimiting)),
        Setting("aging", "High tasks ahead by",
                "Tasks then have priorities; low ones wait as much longer. Empty: no priorities."),
    )),
    ("Groups", (
        Setting("groups_mode", "Tasks of groups", "A queue has either groups or priorities.",
                kind="select", width="l",
                options=(("none", "none"), ("fair", "fair: groups take turns"),
                         ("strict", "strict: in order (only of a new queue)"))),
        Setting("groups_on_dead", "After a dead task, in strict order", kind="select", width="l",
                options=(("continue", "continue"), ("halt", "halt the group"))),
        Setting("group_limit", "Max in flight per group", "At most 100; 0: no limit."),
        Setting("group_weights", "Weights", "Default 1. Example: acme=4, beta=0.5",
                width="l"),
    )),
    ("Dead tasks", rows_of(DeadLetterConfig)),
    ("Target", TARGET),
    ("Completion webhook", ON_END),
    ("Alerts", ALERTS),
)  # fmt: skip

DURATIONS: Final = frozenset(
    one.about.short
    for shape in (QueueSettings, PrioritySettings, Target, AlertSettings)
    for one in declared_settings(shape)
    if one.kind is Kind.SECONDS
)
"""The fields with one length of time; ``intervals`` has several."""

LABELS: Final = {one.name: one.label for _, settings in GROUPS for one in settings}


def as_shown(name: str, text: str) -> str:
    """Return a typed text as the form shows its value: 120 seconds are ``2m``."""
    try:
        if name in DURATIONS:
            return duration_text(times.read_duration(text))
        if name == "intervals":
            parts = filter(None, map(str.strip, text.split(",")))
            return ", ".join(duration_text(times.read_duration(part)) for part in parts)
    except ValueError:
        pass
    return text


def texts_of(settings: QueueSettings) -> dict[str, str]:
    """Return the text of each field."""
    dequeuing = settings.dequeuing_settings
    rate = dequeuing.rate_limiting
    return {
        **texts_in(settings),
        "indexed_fields": " ".join(settings.indexed_fields),
        **retry_texts(settings.retry_strategy),
        **texts_in(dequeuing),
        **(texts_in(rate) if rate else {**texts_in(RateLimiting(1)), "rate_tokens": ""}),
        "aging": duration_text(settings.priority.aging_in_seconds) if settings.priority else "",
        **_group_texts(settings.groups),
        **texts_in(settings.dead_letter_queue_config),
        **push_texts(settings.target, settings.on_end),
        **alert_texts(settings.alerts),
    }


def _group_texts(groups: GroupSettings | None) -> dict[str, str]:
    weights = {} if groups is None else groups.weights
    return {
        "groups_mode": "none" if groups is None else str(groups.mode),
        "groups_on_dead": str((groups and groups.on_dead) or OnDead.CONTINUE),
        "group_limit": "0" if groups is None else str(groups.max_inflight_per_group),
        "group_weights": ", ".join(f"{key}={text_of(one)}" for key, one in weights.items()),
    }


def _read_groups(
    typed: Typed, old: GroupSettings | None, errors: FormErrors
) -> GroupSettings | None:
    """Return the settings of groups; unchanged weights stay as they are."""
    mode = typed.choice("groups_mode", ("none", *GroupMode))
    limit = typed.whole("group_limit", limits.GROUP_INFLIGHT)
    text = typed.texts["group_weights"]
    weights = old.weights if old and text == _group_texts(old)["group_weights"] else None
    if weights is None:
        weights = _read_weights(text, errors)
    on_dead = OnDead(typed.choice("groups_on_dead", tuple(OnDead)))
    if mode == GroupMode.STRICT:
        if limit > 1:
            errors.add("group_limit", "must be at most 1 in strict order")
        return GroupSettings(GroupMode.STRICT, weights, limit, on_dead)
    if mode != "none":
        return GroupSettings(GroupMode(mode), weights, limit)
    if limit and old is None:
        errors.add("group_limit", "must be 0 where tasks are of no groups")
    return None


def _read_weights(text: str, errors: FormErrors) -> dict[str, float]:
    """Read `acme=4, beta=0.5`; only the API takes keys with a comma."""
    found: dict[str, float] = {}
    least, most = limits.GROUP_KEY_BYTES
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, number = part.rpartition("=")
        weight = read_number(number.strip())
        if weight is None or limits.number_fault(weight, limits.WEIGHT):
            low, high = limits.WEIGHT
            fault = f"must have a number from {low} to {high:,} behind each =, as acme=4"
        else:
            fault = limits.text_fault(key.strip(), most, least) or ""
        if fault:
            errors.add("group_weights", fault)
            return {}
        found[key.strip()] = float(weight or 1)
    if len(found) > limits.WEIGHTS:
        errors.add("group_weights", f"must be at most {limits.WEIGHTS:,}")
    return found


_FIELD: Final = re.compile(rf'(?:{QUOTED}|[^\s"]|".*+)++', re.DOTALL)
"""One field; a quote without an end takes the rest of the text."""


def _read_indexed(text: str, errors: FormErrors) -> tuple[str, ...]:
    """Read `tag:tenant payload.order`."""
    named = _FIELD.findall(text)
    if fault := fields_fault(named):
        errors.add("indexed_fields", fault)
        return ()
    return tuple(str(read_field(field)[0]) for field in named)


def read_settings(
    texts: Mapping[str, str], old: QueueSettings, errors: FormErrors
) -> QueueSettings:
    """Return *old* with the values in *texts*; add errors to *errors* by field."""
    typed = Typed(texts, errors)
    rate = None
    if texts["rate_tokens"]:
        rate = RateLimiting(**typed.settings(RateLimiting))
    priority = None
    groups = _read_groups(typed, old.groups, errors)
    if texts["aging"]:
        priority = PrioritySettings(**typed.settings(PrioritySettings))
        if groups is not None:
            errors.add("aging", "must be empty: the queue has groups, which take turns")
    return replace(
        old,
        **typed.settings(QueueSettings),
        retry_strategy=read_retry(texts, errors),
        dequeuing_settings=DequeuingSettings(
            **typed.settings(DequeuingSettings),
            rate_limiting=rate,
            dequeuing_paused=old.dequeuing_settings.dequeuing_paused,
        ),
        dead_letter_queue_config=DeadLetterConfig(**typed.settings(DeadLetterConfig)),
        indexed_fields=_read_indexed(texts["indexed_fields"], errors),
        priority=priority,
        groups=groups,
        target=read_target(typed, old.target),
        on_end=read_on_end(typed),
        alerts=read_alerts(typed),
    )
