"""The settings of a queue, and the turns of its groups, as facts."""

from collections.abc import Iterator

from headrace.domain.access import Permission
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings, Threshold
from headrace.domain.settings import Kind, own_settings
from headrace.domain.task_groups import GroupSettings, OnDead
from headrace.domain.times import duration_text
from headrace.history.stats import GroupGlance
from headrace.ops.shared.push_status import PushStatus

from .. import formatting
from ..parts import Fact
from ..request_context import RequestContext
from .queues import limit_words, limits_of


def settings(context: RequestContext, queue: Queue) -> tuple[Fact, ...]:
    """Return the settings of *queue*, and the answers of its target."""
    push = context.use.push_targets.status(queue)
    return (*_settings(queue), *_target(queue, push), *_told(context, queue))


def group(one: GroupGlance) -> Fact:
    turns = f"{formatting.number(one.turns)} of the next turns"
    rate = f"{formatting.rate(one.dequeued)}/s"
    oldest = f"oldest due for {formatting.duration(round(one.age, 1))}"
    blocked = "" if one.blocked is None else f"; must wait: {one.blocked.why}"
    return Fact(one.group_key or "without a key", f"{turns}, {rate}, {oldest}{blocked}")


def _shares(groups: GroupSettings) -> str:
    more = f", {formatting.number(len(groups.weights))} weighted" if groups.weights else ""
    limit = groups.max_inflight_per_group
    most = f", at most {formatting.number(limit)} of each in flight" if limit else ""
    halts = ", a dead task halts its group" if groups.on_dead is OnDead.HALT else ""
    return f"{groups.mode}{more}{most}{halts}"


def _target(queue: Queue, push: PushStatus | None) -> tuple[Fact, ...]:
    target = queue.settings.target
    if target is None or push is None:
        return ()
    codes = ", ".join(
        f"{code}: {formatting.number(count)}" for code, count in sorted(push.codes.items())
    )
    latency = "none yet"
    if push.p50 is not None and push.p99 is not None:
        latency = f"p50 {formatting.duration(push.p50)}, p99 {formatting.duration(push.p99)}"
    return (
        Fact("Target", target.shown),
        Fact("Max concurrent requests", formatting.number(target.max_concurrency)),
        Fact("Request timeout", duration_text(target.timeout_in_seconds)),
        Fact("Headers", ", ".join(target.headers) or "none"),
        Fact("Dispatchers now", formatting.number(push.running)),
        Fact("Answers", codes or "none yet"),
        Fact("Latency", latency),
    )


def _indexed(context: RequestContext, queue: Queue) -> str:
    """Return the indexed fields, and which are still being built."""
    ready = context.use.inspect.indexed(queue)
    return ", ".join(
        field if field in ready else f"{field} (being built)"
        for field in queue.settings.indexed_fields
    )


def _told(context: RequestContext, queue: Queue) -> tuple[Fact, ...]:
    def named(queue: str | None) -> str:
        known = queue is not None and context.allows(Permission.READ, queue)
        return str(queue) if known else "another queue"

    facts = []
    if queue.settings.indexed_fields:
        facts.append(Fact("Indexed fields", _indexed(context, queue), code=True))
    if (on_end := queue.settings.on_end) is not None:
        ends = " and ".join(state.lower() for state in on_end.states)
        facts.append(Fact("Completion webhook", f"{named(on_end.queue)}, for {ends} tasks"))
    if (alerts := queue.settings.alerts) is not None:
        limits = ((one, alerts.limit(one)) for one in Threshold)
        when = " or ".join(limit_words(one, limit) for one, limit in limits if limit is not None)
        facts.append(Fact("Alert queue", f"{named(alerts.queue)}, when {when}"))
    return tuple(facts)


def _own_settings(settings: QueueSettings) -> Iterator[Fact]:
    """Yield what the declared settings say; the description is under the heading."""
    for one in own_settings(QueueSettings):
        value = one.value_in(settings)
        if one.kind is Kind.TEXT:
            if value and one.name != "description":
                yield Fact(one.about.title, value)
        elif not value and one.about.zero:
            yield Fact(one.about.title, one.about.zero)
        else:
            words = duration_text if one.kind is Kind.SECONDS else formatting.number
            yield Fact(one.about.title, words(value))


def _settings(queue: Queue) -> tuple[Fact, ...]:
    settings = queue.settings
    config = settings.dead_letter_queue_config
    kept = duration_text(config.retention_period_in_seconds)
    most = f", at most {formatting.number(config.max_size)}" if config.max_size else ""
    return (
        *_own_settings(settings),
        Fact("Retries", formatting.retries(settings.retry_strategy)),
        Fact("Limits", limits_of(queue) or "none"),
        Fact("Dead-letter retention", f"{kept}{most}" if config.enable else "none"),
        Fact("Priority aging", duration_text(settings.priority.aging_in_seconds))
        if settings.priority
        else Fact("Priorities", "none"),
        Fact("Groups", _shares(settings.groups) if settings.groups else "none"),
        Fact("Version", formatting.number(queue.version)),
        Fact("Created", at=queue.created_at),
        Fact("Changed", at=queue.updated_at),
    )
