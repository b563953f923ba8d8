"""All queues at a glance, and the form that creates one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.queue import Queue, QueueSettings, Threshold
from headrace.domain.task import Status
from headrace.history.stats import EventRates, Glance

from .. import charts, formatting, urls
from ..charts import Spark
from ..forms import NO_ERRORS, Errors
from ..pages import Flash, Page
from ..parts import Age, AlertNote, Empty, Field, Pager
from ..request_context import RequestContext, each
from ..routes import Redirect, Reply, routes
from ..setting_fields import INFLIGHT_HINT, read_settings, texts_of
from ..typed_settings import Setting
from .confirm import ConfirmPage, Question, ask
from .navigation import crumbs, pager, queues_named

if TYPE_CHECKING:
    from headrace.domain.alerts import Alert
    from headrace.history.listening import OnDuty

_PAGE: Final = 50
_AMBER: Final = 60.0  # seconds that a task may wait to be taken
_RED: Final = 600.0
_DEFAULTS: Final = QueueSettings()
_USUAL: Final = texts_of(_DEFAULTS)
_NUMBER: Final = partial(Setting, kind="number", width="s")
_FIELDS: Final = (
    Setting("description", "Description", width="l"),
    _NUMBER("keepalive", "Lease, seconds", "A worker that is silent for so long loses the task."),
    _NUMBER("max_retries", "Retries", "How often a failed task is tried again."),
    _NUMBER("expires", "Expires after, seconds", "Counted from when it is due; 0 is never."),
    _NUMBER("dead_retention", "Keep the dead, seconds", "0 keeps none."),
    _NUMBER("history", "Keep the succeeded, seconds", "0 keeps none."),
    _NUMBER("max_inflight", "Most in flight", INFLIGHT_HINT),
)
_WHOLE: Final = {
    "keepalive": limits.KEEPALIVE_SECONDS,
    "max_retries": limits.MAX_RETRIES,
    "expires": (0, limits.EXPIRES_SECONDS[1]),
    "dead_retention": limits.RETENTION_SECONDS,
    "history": limits.RETENTION_SECONDS,
    "max_inflight": limits.INFLIGHT,
}
"""The numbers of a new queue, which are whole."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue at a glance."""

    name: str
    url: str
    ready_url: str
    dead_url: str
    counts: Mapping[Status, int]
    cancelled: int
    oldest: Age | None
    rates: EventRates
    spark: Spark
    paused: bool
    resume_at: datetime | None
    limited: str
    alerts: tuple[AlertNote, ...]
    silent: bool = False  #: something is ready and nobody listens


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
    prefix, page = queues_named(context, _PAGE)
    seen = context.use.stats.overview(page.shown, each)
    on_duty = context.use.listening.on_duty()
    rows = tuple(_row(context, queue, seen.queues[queue.name], on_duty) for queue in page.shown)
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


def _row(context: RequestContext, queue: Queue, stats: Glance, on_duty: "OnDuty") -> QueueRow:
    return QueueRow(
        name=queue.name,
        url=context.url(urls.QUEUE, queue=queue.name),
        ready_url=context.url(urls.QUEUE, {"state": "READY"}, queue=queue.name),
        dead_url=context.url(urls.QUEUE, {"state": "DEAD"}, queue=queue.name),
        counts=stats.counts,
        cancelled=stats.cancelled,
        oldest=waiting(stats.age_of_oldest_ready),
        rates=stats.rates,
        spark=charts.spark(stats.started, of="started", per="5 min"),
        paused=queue.settings.dequeuing_settings.dequeuing_paused,
        resume_at=queue.resume_at,
        limited=limits_of(queue),
        alerts=alerts_of(stats.alerts),
        silent=stats.counts[Status.READY] > 0
        and on_duty.silent(queue, stats.rates.dequeued, context.now),
    )


def alerts_of(on: Mapping[Threshold, "Alert"] | None) -> tuple[AlertNote, ...]:
    """Return the alerts that are *on*, by the names of their limits, in words."""
    return tuple(
        AlertNote(limit_words(name, alert.limit), alert.since)
        for name, alert in (on or {}).items()
        if alert.since is not None
    )


def limit_words(name: Threshold, limit: float) -> str:
    """Return in words that a limit of this *name* is reached."""
    if name is Threshold.DEAD:
        return f"{formatting.count_of(int(limit), 'task')} dead in a minute"
    for_ = formatting.duration(limit)
    return f"oldest ready for {for_}" if name is Threshold.OLDEST_READY else f"no worker for {for_}"


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
    fields = (
        Field("name", "Name", given("name"), required=True, width="l", error=errors.of("name"),
              hint="Letters, digits, dots, dashes, underscores."),
        *(one.field(given(one.name, _USUAL[one.name]), errors.of(one.name)) for one in _FIELDS),
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


def _settings(context: RequestContext, errors: Errors) -> QueueSettings:
    """Return the settings that were typed, the usual where a field is empty."""
    texts = {**_USUAL, "description": context.request.given("description")}
    for name, within in _WHOLE.items():
        text = context.request.given(name).strip()
        errors.whole(name, text, within)
        texts[name] = text or _USUAL[name]
    return read_settings(texts, _DEFAULTS, errors)
