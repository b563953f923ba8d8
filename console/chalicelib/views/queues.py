"""All queues at a glance, and the form that creates one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain.access import Permission
from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.queue import Pause, Queue
from headrace.domain.queue_settings import QueueSettings, Threshold
from headrace.domain.settings import Kind, declared_settings
from headrace.domain.task import Status
from headrace.domain.times import duration_text
from headrace.history.stats import EventRates, Glance

from .. import charts, formatting, urls
from ..cells import Cell, Dim, Figure, Note
from ..forms import NO_ERRORS, FormErrors
from ..pages import Flash, Page
from ..parts import Age, AlertNote, Empty, Field, Link
from ..request_context import RequestContext, each
from ..routes import Redirect, Reply, routes
from ..setting_fields import DURATIONS, GROUPS, read_settings, texts_of
from ..typed_settings import rows_of
from .columns import Column, Columns, numbers
from .confirm import ask
from .list_search import ListSearch
from .navigation import crumbs, queue_tabs
from .search_box import list_box
from .snoozing import without_snoozed
from .trouble import AMBER, RED, Rank, Trouble, TroubleReason, delta, reasons_of, worst_first

if TYPE_CHECKING:
    from headrace.domain.alerts import Alert
    from headrace.history.listening import OnDuty

_NONE: Final = Dim("\u2013")
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
    on_duty, glances = context.use.listening.on_duty_lately(), seen.queues
    pushes = backing_off(context, page.shown)
    troubles = worst_first(
        (
            Trouble(queue.name, context.url(urls.QUEUE, queue=queue.name), found),
            glances[queue.name].counts[Status.READY],
        )
        for queue in page.shown
        if (found := _reasons(queue, glances[queue.name], on_duty, context.now, pushes))
    )
    troubles, snoozed = without_snoozed(context, troubles)
    troubles = [*_stalled_workflows(context), *troubles]
    left = len(troubles) - _TROUBLES if context.request.param(_ALL) != "all" else 0
    columns = _columns(context, glances, on_duty, pushes)
    return Page(
        "queues.html",
        title="Queues",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        troubles=_explained(context, troubles[:_TROUBLES] if left > 0 else troubles, page.shown),
        more_troubles=Link(f"and {formatting.number(left)} more", wanted.url(**{_ALL: "all"}))
        if left > 0
        else None,
        snoozed=snoozed,
        calm="" if troubles else _calm(page.shown, more=page.cursor is not None),
        tabs=queue_tabs(context),
        table=wanted.table("queues", columns, page.shown, "name"),
        as_of=seen.as_of,
        create=context.url(urls.CREATE_QUEUE) if context.allows(Permission.ADMINISTER) else None,
        pager=wanted.pager(len(page.shown)),
        empty=wanted.empty(
            Empty("No queues yet that this key can see.", "headrace queue create mail")
        ),
    )


def _reasons(
    queue: Queue, glance: Glance, on_duty: "OnDuty", now: datetime, pushes: Mapping[str, str]
) -> tuple[TroubleReason, ...]:
    alerts = alerts_of(glance.alerts, glance.age_of_oldest_ready)
    return reasons_of(queue, glance, on_duty, alerts, now, pushes.get(queue.name, ""))


def backing_off(context: RequestContext, queues: Iterable[Queue]) -> dict[str, str]:
    """Return why targets of *queues* get fewer requests, by queue; only of those that do."""
    found = {}
    for queue in queues:
        push = context.use.push_targets.status(queue)
        if push is not None and push.busy:
            found[queue.name] = push.backing_off
    return found


def _columns(
    context: RequestContext,
    glances: Mapping[str, Glance],
    on_duty: "OnDuty",
    pushes: Mapping[str, str],
) -> Columns[Queue]:
    def of(queue: Queue) -> Glance:
        return glances[queue.name]

    def name(queue: Queue) -> Cell:
        glance = of(queue)
        return (
            Link(queue.name, context.url(urls.QUEUE, queue=queue.name)),
            *_notes(queue, glance, on_duty, context.now),
            Note("backing off", "warn") if queue.name in pushes else None,
            Note(limits) if (limits := limits_of(queue)) else None,
        )

    def counted(status: Status) -> Column[Queue]:
        def count(queue: Queue) -> Cell:
            number, word = of(queue).counts[status], status.value.lower()
            linked = status in (Status.READY, Status.DEAD)
            cancelled = of(queue).cancelled if status is Status.DEAD else 0
            url = context.url(urls.QUEUE, {"state": status.value}, queue=queue.name)
            figure = Figure.of(
                number,
                url=url if linked else "",
                label=f"{formatting.short_number(number)} {word} in {queue.name}",
                bad=status is Status.DEAD and number > cancelled,
            )
            text = f"{formatting.short_number(cancelled)} cancelled"
            return (Note(text), figure) if cancelled else figure

        word = status.value.lower()
        return numbers(word.capitalize(), lambda queue: of(queue).counts[status], count, sign=word)

    def rate(
        text: str, by: Callable[[EventRates], float], title: str, *, bad: bool = False
    ) -> Column[Queue]:
        def shown(queue: Queue) -> Cell:
            value = by(of(queue).rates)
            return Figure(formatting.rate(value), zero=not value, bad=bad and bool(value))

        return numbers(text, lambda queue: by(of(queue).rates), shown, title=title)

    def grown(queue: Queue) -> Cell:
        waits, died = delta(of(queue).grown), delta(of(queue).died)
        return (
            (waits, Dim("waiting")) if waits else None,
            Figure(f"{died} dead", bad=True) if died else None,
            None if waits or died else _NONE,
        )

    def started(queue: Queue) -> Cell:
        return charts.spark(of(queue).started, of="started", per="5 min")

    return {
        "name": Column("Queue", lambda queue: queue.name, name),
        **{status.value.lower(): counted(status) for status in Status},
        "oldest": numbers(
            "Oldest ready",
            lambda queue: of(queue).age_of_oldest_ready or -1.0,
            lambda queue: waiting(of(queue).age_of_oldest_ready) or _NONE,
        ),
        "in": rate("In /s", lambda rates: rates.enqueued, "enqueued a second"),
        "out": rate("Out /s", lambda rates: rates.out, "succeeded or moved on, a second"),
        "failed": rate(
            "Failed /s", lambda rates: rates.failed, "failed attempts a second", bad=True
        ),
        "grown": numbers(
            "In 5 min", lambda queue: of(queue).grown, grown, title="change of ready and scheduled"
        ),
        "started": Column(
            "Started, last hour",
            lambda queue: sum(of(queue).started),
            started,
            falling=True,
            title="attempts, by 5 min",
        ),
    }


def _notes(queue: Queue, glance: Glance, on_duty: "OnDuty", now: datetime) -> Iterator[Cell]:
    """Yield what to know of *queue*: it is paused, has no free workers, or an alert is on."""
    if queue.settings.dequeuing_settings.dequeuing_paused:
        resumes = ("paused, resumes", queue.resume_at) if queue.resume_at else "paused"
        yield Note(resumes, "warn")
    if glance.counts[Status.READY]:
        if on_duty.silent(queue, glance.rates.dequeued, now):
            yield Note("no workers", "bad")
        if on_duty.of(queue.name).all_busy:
            yield Note("all workers busy", "warn")
    for alert in alerts_of(glance.alerts, glance.age_of_oldest_ready):
        now_fine = "; now below the limit" if alert.recovers else None
        yield Note((f"{alert.text}, since", alert.since, now_fine), "warn")


def _calm(rows: Sequence[Queue], *, more: bool) -> str:
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
    """Return the pause of *queue*, or None if this visitor may not read the audit."""
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
def ask_new(context: RequestContext, errors: FormErrors = NO_ERRORS) -> Reply:
    """Ask what the new queue is like."""
    given = context.request.given
    fields = (
        Field("name", "Name", given("name"), required=True, width="l", error=errors.of("name"),
              hint="Letters, digits, dots, dashes, underscores."),
        *(one.field(given(one.name, _USUAL[one.name]), errors.of(one.name)) for one in _FIELDS),
    )  # fmt: skip
    return ask(
        crumbs(context),
        question="Create a queue",
        action=context.url(urls.CREATE_QUEUE),
        button="Create queue",
        fields=fields,
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
