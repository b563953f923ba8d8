"""Each setting of a queue as a field: its words, its text, and how that is read."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from console.chalicelib import retry_fields
from console.chalicelib.forms import Errors
from console.chalicelib.retry_fields import RETRIES, Setting, read_retry, retry_texts, text_of
from headrace.domain import limits
from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    QueueSettings,
    RateLimiting,
)

_INTERVAL: Final = (1, 86_400)

INFLIGHT_HINT: Final = "At most 10,000; for more, 0: no limit but shards and workers."

GROUPS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    ("In general", (
        Setting("description", "Description", width="l"),
        Setting("keepalive", "Lease, seconds", "A silent worker loses the task."),
        Setting("expires", "Expires after, seconds", "From when it is due; 0 is never."),
        Setting("history", "History, seconds", "How long the succeeded are kept; 0 keeps none."),
        Setting("shards", "Shards", "1 keeps the order."),
    )),
    ("Retries", RETRIES),
    ("Deliveries", (
        Setting("max_inflight", "Most in flight", INFLIGHT_HINT),
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
    dequeuing = settings.dequeuing_settings
    rate, dead = dequeuing.rate_limiting, settings.dead_letter_queue_config
    return {
        "description": settings.description,
        "keepalive": text_of(settings.keepalive_timeout_in_seconds),
        "expires": text_of(settings.expires_in_seconds),
        "history": text_of(settings.history_retention_in_seconds),
        "shards": str(settings.shards),
        **retry_texts(settings.retry_strategy),
        "max_inflight": str(dequeuing.max_inflight_tasks),
        "rate_tokens": str(rate.max_tokens) if rate else "",
        "rate_interval": str(rate.interval) if rate else "1",
        "rate_unit": rate.interval_unit.value if rate else IntervalUnit.SECONDS.value,
        "dead_enable": "yes" if dead.enable else "no",
        "dead_retention": text_of(dead.retention_period_in_seconds),
        "dead_most": str(dead.max_size),
    }


def read_settings(texts: Mapping[str, str], old: QueueSettings, errors: Errors) -> QueueSettings:
    """Return *old* with what *texts* say; what is wrong goes to *errors*, by field."""
    number = partial(retry_fields.number, texts, errors=errors)
    whole = partial(retry_fields.whole, texts, errors=errors)
    choice = partial(retry_fields.choice, texts, errors=errors)
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
        keepalive_timeout_in_seconds=number("keepalive", limits.KEEPALIVE_SECONDS),
        expires_in_seconds=number("expires", (0, limits.EXPIRES_SECONDS[1])),
        retry_strategy=read_retry(texts, errors),
        dequeuing_settings=DequeuingSettings(
            max_inflight_tasks=whole("max_inflight", limits.INFLIGHT),
            rate_limiting=rate,
            dequeuing_paused=old.dequeuing_settings.dequeuing_paused,
        ),
        dead_letter_queue_config=DeadLetterConfig(
            enable=choice("dead_enable", ("yes", "no")) == "yes",
            retention_period_in_seconds=number("dead_retention", limits.RETENTION_SECONDS),
            max_size=whole("dead_most", limits.COUNT),
        ),
        history_retention_in_seconds=number("history", limits.RETENTION_SECONDS),
        shards=whole("shards", limits.SHARDS),
    )
