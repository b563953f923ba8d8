"""All queues at a glance, and the form that creates one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.queue import Pause, Queue
from headrace.domain.queue_settings import QueueSettings, Threshold
from headrace.domain.settings import Kind, declared_settings
from headrace.domain.task import Status
from headrace.domain.times import duration_text
from headrace.history.stats import EventRates, Glance

from .. import charts, formatting, urls
from ..cells import Cell
from ..charts import Spark
from ..forms import NO_ERRORS, FormErrors
from ..pages import Flash, Page
from ..parts import Age, AlertNote, Empty, Field, Heading, Link, Pager, SearchBox, Tab
from ..request_context import RequestContext, each
from ..routes import Redirect, Reply, routes
from ..setting_fields import DURATIONS, GROUPS, read_settings, texts_of
from ..typed_settings import rows_of
from .columns import Column, Columns, numbers
from .confirm import ConfirmPage, Question, ask
from .list_search import ListSearch
from .navigation import crumbs, queue_tabs
from .search_box import list_box
from .snoozing import without_snoozed
from .trouble import AMBER, RED, Rank, Trouble, TroubleReason, delta, reasons_of, worst_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.domain.alerts import Alert
    from headrace.history.listening import OnDuty

_TROUBLES: Final = 10
_ALL: Final = "troubles"  # the part of an address that shows all of them
_DEFAULTS: Final = QueueSettings()
_USUAL: Final = texts_of(_DEFAULTS)
_ASKED: Final = (
    "lease_seconds", "max_retries", "expires", "dead_retention", "history", "max_inflight",
)  # fmt: skip
_DECLARED: Final = {one.about.short: one for one in declared_settings(QueueSettings)}
_FIELDS: Final = (
    *(one for one in rows_of(QueueSettings) if _DECLARED[one.name].kind is Kind.TEXT),
    *(
        replace(one, width="s", kind="text" if one.name in DURATIONS else "number")
        for name in _ASKED
        for _, group in GROUPS
        for one in group
        if one.name == name
    ),
)
"""The fields of a new queue: all texts, and those numbers that many queues need."""


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
    silent: bool = False  #: something is ready and there are no workers
    busy: bool = False  #: something is ready and all workers are busy
    grown: str = ""  #: by how much what waits, ready or scheduled, has changed in five minutes
    died: str = ""  #: how many died in them
    step: int = 0  #: as ``grown``
    begun: int = 0  #: attempts in the last hour


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage(Page):
    """What needs attention, then one row a queue; ``calm`` is said where nothing does."""

    template: ClassVar[str] = "queues.html"
    search: SearchBox
    troubles: tuple[Trouble, ...]
    more_troubles: Link | None
    snoozed: Cell
    calm: str
    tabs: tuple[Tab, ...]
    headings: tuple[Heading, ...]
    rows: tuple[QueueRow, ...]
    as_of: datetime | None
    create: str | None
    pager: Pager
    empty: Empty


def waiting(seconds: float | None) -> Age | None:
    """Return how long the oldest ready task has waited, and whether that is too long."""
    if seconds is None:
        return None
    for limit, level in ((RED, "bad"), (AMBER, "warn")):
        if seconds > limit:
            return Age(seconds, level, f"over {formatting.duration(limit)}")
    return Age(seconds)


@routes.get(urls.QUEUES, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show what needs attention, and a page of queues."""
    wanted: ListSearch[Queue] = ListSearch(context, "queues")
    page = wanted.look(
        lambda where, limit, cursor: context.use.queues.list(
            where=where, limit=limit, cursor=cursor
        )
    )
    seen = context.use.stats.overview(page.shown, each)
    on_duty = context.use.listening.on_duty_lately()
    rows = [_row(context, queue, seen.queues[queue.name], on_duty) for queue in page.shown]
    troubles = worst_first(
        (Trouble(row.name, row.url, found), row.counts[Status.READY])
        for queue, row in zip(page.shown, rows, strict=True)
        if (found := reasons_of(queue, seen.queues[row.name], on_duty, row.alerts, context.now))
    )
    create = context.url(urls.CREATE_QUEUE) if context.allows(Permission.ADMINISTER) else None
    troubles, snoozed = without_snoozed(context, troubles)
    troubles = [*_stalled_workflows(context), *troubles]
    left = len(troubles) - _TROUBLES if context.request.param(_ALL) != "all" else 0
    return QueuesPage(
        title="Queues",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        troubles=_explained(context, troubles[:_TROUBLES] if left > 0 else troubles, page.shown),
        more_troubles=Link(f"and {formatting.number(left)} more", wanted.url(**{_ALL: "all"}))
        if left > 0
        else None,
        snoozed=snoozed,
        calm="" if troubles else _calm(rows, more=page.cursor is not None),
        tabs=queue_tabs(context),
        headings=wanted.headings(COLUMNS, "name"),
        rows=wanted.rows(COLUMNS, rows),
        as_of=seen.as_of,
        create=create,
        pager=wanted.pager(len(rows)),
        empty=wanted.empty(
            Empty(
                "No queues yet that this key can see.",
                "headrace queue create mail",
            )
        ),
    )


def _counted(status: Status) -> "Callable[[QueueRow], int]":
    return lambda row: row.counts[status]


COLUMNS: Final[Columns[QueueRow]] = {
    "name": Column("Queue", lambda row: row.name),
    **{
        status.value.lower(): numbers(
            status.value.capitalize(), _counted(status), sign=status.value.lower()
        )
        for status in Status
    },
    "oldest": numbers("Oldest ready", lambda row: row.oldest.seconds if row.oldest else -1.0),
    "in": numbers("In /s", lambda row: row.rates.enqueued, title="enqueued a second"),
    "out": numbers(
        "Out /s",
        lambda row: row.rates.out,
        title="succeeded a second, or moved on to another queue",
    ),
    "failed": numbers("Failed /s", lambda row: row.rates.failed, title="failed attempts a second"),
    "grown": numbers("In 5 min", lambda row: row.step, title="change of ready and scheduled; died"),
    "started": Column(
        "Started, last hour", lambda row: row.begun, falling=True, title="attempts, by 5 min"
    ),
}


def _calm(rows: Sequence[QueueRow], *, more: bool) -> str:
    if not rows:
        return ""
    if len(rows) == 1 and not more:
        return "Nothing needs attention."
    here = " of this page" if more else ""
    return f"Nothing needs attention in the {formatting.count_of(len(rows), 'queue')}{here}."


def _stalled_workflows(context: RequestContext) -> Iterator[Trouble]:
    for one in context.use.task_batches.stalled():
        dead, missing = formatting.number(one.dead), (one.total or 0) - one.direct
        text = f"{dead} dead, {formatting.number(missing)} not started, and nothing runs"
        reason = TroubleReason(Rank.STALLED, text, since=one.counted_at)
        yield Trouble(one.id, context.url(urls.WORKFLOW, id=one.id), (reason,))


def _explained(
    context: RequestContext, troubles: Sequence[Trouble], queues: Sequence[Queue]
) -> tuple[Trouble, ...]:
    """Return *troubles* with who paused each paused queue, when and why."""
    pauses = {queue.name: pause_of(context, queue) for queue in queues}
    return tuple(_who_paused(trouble, pauses.get(trouble.name)) for trouble in troubles)


def pause_of(context: RequestContext, queue: Queue) -> Pause | None:
    """Return who paused *queue*; None too for those who may not read the audit."""
    return queue.pause if context.allows(Permission.OPERATE, queue.name) else None


def _who_paused(trouble: Trouble, pause: Pause | None) -> Trouble:
    paused = [reason.text for reason in trouble.reasons if reason.rank is Rank.PAUSED]
    if pause is None or not paused:
        return trouble
    return trouble.explained(f"by {pause.by}, {paused[0]}", pause.at, pause.reason)


@routes.post(urls.CREATE_QUEUE, Permission.ADMINISTER)
def create(context: RequestContext) -> Reply:
    """Create a queue, or show the errors of the form."""
    errors = FormErrors()
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
            done = Flash("done", f"Queue {name} created.")
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
        alerts=alerts_of(stats.alerts, stats.age_of_oldest_ready),
        silent=stats.counts[Status.READY] > 0
        and on_duty.silent(queue, stats.rates.dequeued, context.now),
        busy=stats.counts[Status.READY] > 0 and on_duty.of(queue.name).all_busy,
        grown=delta(stats.grown),
        step=stats.grown,
        died=delta(stats.died),
        begun=sum(stats.started),
    )


def alerts_of(
    on: Mapping[Threshold, "Alert"] | None, oldest_ready: float | None
) -> tuple[AlertNote, ...]:
    """Return the alerts that are *on*, by the names of their limits, in words.

    *oldest_ready* is the age now, in seconds; None when nothing is ready.
    """

    def recovers(name: Threshold, alert: "Alert") -> bool:
        below = name is Threshold.OLDEST_READY and (oldest_ready or 0.0) < alert.limit
        return below or alert.quiet_since is not None

    return tuple(
        AlertNote(limit_words(name, alert.limit), alert.since, recovers(name, alert))
        for name, alert in (on or {}).items()
        if alert.since is not None
    )


def limit_words(name: Threshold, limit: float) -> str:
    """Return in words that a limit of this *name* is reached."""
    if name is Threshold.DEAD:
        return f"{formatting.count_of(int(limit), 'task')} dead in a minute"
    for_ = duration_text(limit)
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


@routes.get(urls.CREATE_QUEUE, Permission.ADMINISTER)
def ask_new(context: RequestContext, errors: FormErrors = NO_ERRORS) -> ConfirmPage:
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


def _settings(context: RequestContext, errors: FormErrors) -> QueueSettings:
    """Return the settings that were typed, the usual where a field is empty."""
    texts = {**_USUAL}
    for name in (one.name for one in _FIELDS):
        text = context.request.given(name).strip()
        if name in _ASKED:
            low, high = _DECLARED[name].within
            read = errors.whole_seconds if name in DURATIONS else errors.whole
            read(name, text, (int(low), int(high)))
        texts[name] = text or _USUAL[name]
    return read_settings(texts, _DEFAULTS, errors)
