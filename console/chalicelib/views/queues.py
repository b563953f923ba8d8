"""All queues at a glance, and the form that creates one."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.queue import DeadLetterConfig, DequeuingSettings, Queue, QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import Status
from headrace.history.stats import Glance
from headrace.ops.operators import visibility

from .. import charts, formatting, urls
from ..charts import Spark
from ..forms import NO_ERRORS, Errors
from ..pages import Flash, Page
from ..parts import Age, Empty, Field, Pager
from ..request_context import RequestContext, each
from ..routes import Redirect, Reply, Routes
from ..setting_fields import INFLIGHT_HINT
from .confirm import ConfirmPage, Question, ask
from .navigation import crumbs, pager

routes: Final = Routes()
_PAGE: Final = 50
_LONGEST: Final = 128  # letters of a name
_AMBER: Final = 60.0  # seconds that a task may wait to be taken
_RED: Final = 600.0
_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue at a glance; ages are seconds, rates events per second."""

    name: str
    url: str
    ready_url: str
    dead_url: str
    description: str
    scheduled: int
    ready: int
    inflight: int
    succeeded: int
    dead: int
    oldest: Age | None
    enqueued_rate: float
    succeeded_rate: float
    failed_rate: float
    spark: Spark
    paused: bool
    resume_at: datetime | None
    limited: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage(Page):
    """One row a queue."""

    template: ClassVar[str] = "queues.html"
    here: str
    prefix: Field
    rows: tuple[QueueRow, ...]
    as_of: datetime | None
    create: str | None
    pager: Pager
    empty: Empty


def waiting(seconds: float | None) -> Age | None:
    """Return how long the oldest ready task has waited, and whether that is too long."""
    if seconds is None:
        return None
    for limit, level in ((_RED, "bad"), (_AMBER, "warn")):
        if seconds > limit:
            return Age(seconds, level, f"over {formatting.duration(limit)}")
    return Age(seconds)


@routes.get(urls.QUEUES, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a page of queues."""
    prefix = context.request.param("name")[:_LONGEST]
    page = visibility.queues(
        context.use.queues,
        context.by,
        prefix=prefix,
        limit=_PAGE,
        cursor=context.request.param("cursor") or None,
    )
    seen = context.use.stats.overview(page.queues, each)
    rows = tuple(_row(context, queue, seen.queues[queue.name]) for queue in page.queues)
    shown = formatting.count_of(len(rows), "queue")
    create = context.url(urls.CREATE_QUEUE) if context.allows(Permission.ADMINISTER) else None
    return QueuesPage(
        title="Queues",
        here=context.url(urls.QUEUES),
        prefix=Field("name", "Name begins with", prefix),
        rows=rows,
        as_of=seen.as_of,
        create=create,
        pager=pager(context, shown, urls.QUEUES, page.cursor, {"name": prefix}),
        empty=_empty(prefix),
    )


@routes.post(urls.CREATE_QUEUE, Permission.ADMINISTER)
def create(context: RequestContext) -> Reply:
    """Create a queue, or show the errors of the form."""
    errors = Errors()
    name = context.request.given("name").strip()
    errors.name("name", name)
    settings = _settings(context, errors)
    if not errors:
        context.require(Permission.ADMINISTER, name)
        try:
            context.use.queues.create(name, settings)
        except (InvalidRequest, Conflict) as error:
            errors.take(error, otherwise="name")
        else:
            done = Flash("done", f"Queue {name} is there.")
            return Redirect(context.url(urls.QUEUE, queue=name), done)
    return ask_new(context, errors)


def _row(context: RequestContext, queue: Queue, stats: Glance) -> QueueRow:
    counts = stats.counts
    return QueueRow(
        name=queue.name,
        url=context.url(urls.QUEUE, queue=queue.name),
        ready_url=context.url(urls.QUEUE, {"state": "READY"}, queue=queue.name),
        dead_url=context.url(urls.QUEUE, {"state": "DEAD"}, queue=queue.name),
        description=queue.settings.description,
        scheduled=counts[Status.SCHEDULED],
        ready=counts[Status.READY],
        inflight=counts[Status.INFLIGHT],
        succeeded=counts[Status.SUCCEEDED],
        dead=counts[Status.DEAD],
        oldest=waiting(stats.age_of_oldest_ready),
        enqueued_rate=stats.rates.enqueued,
        succeeded_rate=stats.rates.succeeded,
        failed_rate=stats.rates.failed,
        spark=charts.spark(stats.started, of="started", per="5 min"),
        paused=queue.settings.dequeuing_settings.dequeuing_paused,
        resume_at=queue.resume_at,
        limited=limits_of(queue),
    )


def limits_of(queue: Queue) -> str:
    """Return the limits on deliveries of *queue*, in words; empty for none."""
    dequeuing = queue.settings.dequeuing_settings
    limits = []
    if dequeuing.max_inflight_tasks:
        limits.append(f"at most {formatting.number(dequeuing.max_inflight_tasks)} in flight")
    if rate := dequeuing.rate_limiting:
        unit = rate.interval_unit.value.lower()
        every = unit.removesuffix("s") if rate.interval == 1 else f"{rate.interval} {unit}"
        limits.append(f"{formatting.number(rate.max_tokens)} per {every}")
    return ", ".join(limits)


def _empty(prefix: str) -> Empty:
    if prefix:
        return Empty(f"No queue's name begins with {prefix}. Upper and lower case differ.")
    return Empty(
        "Queues would be here, one in each row. There is none yet that this key is for.",
        "headrace queue create mail",
    )


@routes.get(urls.CREATE_QUEUE, Permission.ADMINISTER)
def ask_new(context: RequestContext, errors: Errors = NO_ERRORS) -> ConfirmPage:
    """Ask what the new queue is like."""
    given = context.request.given
    retry = _DEFAULTS.retry_strategy
    fields = (
        Field("name", "Name", given("name"), required=True, width="l", error=errors.of("name"),
              hint="Letters, digits, dots, dashes, underscores."),
        Field("description", "Description", given("description"), width="l",
              error=errors.of("description")),
        _number(errors, context, "keepalive", "Lease, seconds",
                _DEFAULTS.keepalive_timeout_in_seconds,
                "A worker that is silent for so long loses the task."),
        _number(errors, context, "max_retries", "Retries", retry.max_retries,
                "How often a failed task is tried again."),
        _number(errors, context, "expires", "Expires after, seconds", _DEFAULTS.expires_in_seconds,
                "Counted from when it is due; 0 is never."),
        _number(errors, context, "dead_retention", "Keep the dead, seconds",
                _DEFAULTS.dead_letter_queue_config.retention_period_in_seconds,
                "0 keeps none."),
        _number(errors, context, "history", "Keep the succeeded, seconds",
                _DEFAULTS.history_retention_in_seconds, "0 keeps none."),
        _number(errors, context, "max_inflight", "Most in flight", 0, INFLIGHT_HINT),
    )  # fmt: skip
    return ask(
        Question(
            question="Create a queue",
            action=context.url(urls.CREATE_QUEUE),
            button="Create queue",
            fields=fields,
        ),
        crumbs(context),
        status=400 if errors else 200,
    )


def _number(
    errors: Errors, context: RequestContext, name: str, label: str, default: float, hint: str
) -> Field:
    value = context.request.given(name, f"{default:g}" if default != int(default) else f"{default}")
    return Field(name, label, value, "number", hint, errors.of(name), width="s")


def _settings(context: RequestContext, errors: Errors) -> QueueSettings:
    given = context.request.given

    def whole(name: str, within: tuple[int, int], default: float) -> int:
        read = errors.whole(name, given(name).strip(), within)
        return int(default) if read is None else read

    retention = _DEFAULTS.dead_letter_queue_config.retention_period_in_seconds
    dead = whole("dead_retention", limits.RETENTION_SECONDS, retention)
    return QueueSettings(
        description=errors.text("description", given("description"), limits.DESCRIPTION_BYTES)
        or "",
        keepalive_timeout_in_seconds=whole(
            "keepalive", limits.KEEPALIVE_SECONDS, _DEFAULTS.keepalive_timeout_in_seconds
        ),
        expires_in_seconds=whole(
            "expires", (0, limits.EXPIRES_SECONDS[1]), _DEFAULTS.expires_in_seconds
        ),
        retry_strategy=RetryStrategy(
            max_retries=whole(
                "max_retries", limits.MAX_RETRIES, _DEFAULTS.retry_strategy.max_retries
            )
        ),
        dequeuing_settings=DequeuingSettings(
            max_inflight_tasks=whole("max_inflight", limits.INFLIGHT, 0)
        ),
        dead_letter_queue_config=DeadLetterConfig(retention_period_in_seconds=dead),
        history_retention_in_seconds=whole(
            "history", limits.RETENTION_SECONDS, _DEFAULTS.history_retention_in_seconds
        ),
    )
