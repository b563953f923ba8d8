"""Making and changing a schedule: the form, and the runs it would lead to before it is saved."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from zoneinfo import available_timezones

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.retry import RetryStrategy
from headrace.domain.schedule import Missed, ScheduleSettings
from headrace.domain.task import DedupeUntil, OnExpiry
from headrace.domain.task_fields import SetBy, texts
from headrace.domain.times import DURATION_EXAMPLES, duration_text

from .. import urls
from ..cells import Runs
from ..forms import FormErrors, tags_text
from ..pages import Flash, Page
from ..parts import Field, Link, Option
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from ..setting_fields import OPTIONAL, USUAL, read_retry, retry_texts
from .navigation import priority_options, queue_link, queue_options
from .schedules import (
    KEY_HELD_TEXTS,
    MISSED_TEXTS,
    ON_EXPIRY_TEXTS,
    SHOWN_RUNS,
    runs_of,
    schedules_crumb,
    when,
)

_EVERY: Final = (1, 31_536_000)  # seconds
_ZONES: Final = ("UTC", "Europe/Madrid", "Europe/London", "America/New_York", "Asia/Tokyo")
_NEW: Final = ScheduleSettings(cron="*/15 * * * *")
_PREVIEW: Final = "preview"


@routes.get(urls.CREATE_SCHEDULE, Permission.OPERATE)
def ask_new(context: RequestContext) -> Reply:
    """Ask for a new schedule, of the queue that the address names if it does."""
    queue = context.request.param("queue")
    typed = _typed_from(_NEW, queue=queue, name="") | _given(context)
    return _page(context, typed, FormErrors(), _NEW, new=True)


def _given(context: RequestContext, *but: str) -> dict[str, Any]:
    """Return the fields of the form, where it is shown again after a sign-in, *but* those."""
    return {name: context.request.given(name) for name in context.request.form if name not in but}


@routes.post(urls.CREATE_SCHEDULE, Permission.OPERATE)
def create(context: RequestContext) -> Reply:
    """Show what the form would lead to, or make the schedule, or say what is wrong."""
    errors = FormErrors()
    queue, name = context.request.given("queue").strip(), context.request.given("name").strip()
    errors.name("queue", queue)
    errors.name("name", name)
    if not errors:
        context.require(Permission.OPERATE, queue)
        try:
            context.use.schedules.get(queue, name)
        except NotFound:
            pass
        else:
            errors.add("name", f"is the name of another schedule of {queue}: open that to edit it")
    return _answer(context, errors, _NEW, queue, name, new=True)


@routes.get(urls.EDIT_SCHEDULE, Permission.OPERATE)
def ask(context: RequestContext) -> Reply:
    """Ask what is to change."""
    context.require(Permission.DETAILS, context.queue)
    old = _old(context)
    typed = _typed_from(old, queue=context.queue, name=context.request.names["name"])
    typed |= _given(context, "queue", "name")
    return _page(context, typed, FormErrors(), old, new=False)


@routes.post(urls.EDIT_SCHEDULE, Permission.OPERATE)
def edit(context: RequestContext) -> Reply:
    """Show what the change would lead to, or make it, or say what is wrong."""
    context.require(Permission.DETAILS, context.queue)
    return _answer(
        context,
        FormErrors(),
        _old(context),
        context.queue,
        context.request.names["name"],
        new=False,
    )


def _old(context: RequestContext) -> ScheduleSettings:
    found = context.use.schedules.get(context.queue, context.request.names["name"])
    return found.schedule.settings


def _answer(
    context: RequestContext,
    errors: FormErrors,
    old: ScheduleSettings,
    queue: str,
    name: str,
    *,
    new: bool,
) -> Reply:
    settings = _read(context, errors, old)
    wanted = context.request.given("do") != _PREVIEW
    runs: Runs | None = None
    if not errors:
        use = context.use.schedules
        try:
            if wanted:
                use.put(queue, name, settings)
                done = Flash("done", f"Schedule {name} of {queue} saved.")
                back = {BACK: context.back}
                return Redirect(context.url(urls.SCHEDULE, back, queue=queue, name=name), done)
            runs = runs_of(settings, use.preview(queue, name, settings, SHOWN_RUNS))
        except NotFound as error:
            if not new:
                raise
            errors.take(error, otherwise="queue")
        except InvalidRequest as error:
            errors.take(error, otherwise="cron")
    typed = {field: context.request.given(field) for field in context.request.form}
    typed |= {"queue": queue, "name": name}
    return _page(context, typed, errors, settings, new=new, runs=runs)


def _read(context: RequestContext, errors: FormErrors, old: ScheduleSettings) -> ScheduleSettings:
    """Return *old* with the values of the form; what the form does not have stays."""

    def given(name: str) -> str:
        return context.request.given(name).strip()

    cron = given("cron") or None
    every = errors.whole_seconds("every_seconds", given("every_seconds"), _EVERY)
    if (cron is None) == (every is None) and not errors.of("every_seconds"):
        for field in ("cron", "every_seconds"):
            errors.add(field, "give exactly one of cron and a length of time")
    of_tasks: dict[str, Any] = {
        one.api_name: errors.text(one.api_name, given(one.api_name), int(one.within[1]))
        for one in texts(SetBy.SCHEDULE)
        if one.within
    }
    return replace(
        old,
        cron=cron,
        every_seconds=every,
        timezone=given("timezone") or "UTC",
        payload=errors.payload("payload", given("payload") or "{}"),
        tags=errors.tags("tags", given("tags")),
        expires_in_seconds=errors.whole_seconds(
            "expires_in_seconds", given("expires_in_seconds"), (0, limits.EXPIRES_SECONDS[1])
        ),
        keepalive_timeout_in_seconds=errors.whole_seconds(
            "keepalive_timeout_in_seconds",
            given("keepalive_timeout_in_seconds"),
            limits.KEEPALIVE_SECONDS,
        ),
        retry_strategy=_retry({one.name: given(one.name) for one in OPTIONAL}, errors)
        if "retry_kind" in context.request.form
        else old.retry_strategy,
        priority=errors.priority("priority", given("priority"))
        if "priority" in context.request.form
        else old.priority,
        dedupe_until=_held_until(
            errors, given("dedupe_until") or old.dedupe_until, of_tasks["dedupe_key"]
        ),
        missed=errors.one_of("missed", given("missed") or old.missed, Missed, old.missed),
        on_expiry=errors.one_of(
            "on_expiry", given("on_expiry") or old.on_expiry, OnExpiry, old.on_expiry
        ),
        **of_tasks,
    )


def _retry(texts: dict[str, str], errors: FormErrors) -> RetryStrategy | None:
    """Return the strategy that was typed, the usual where a field is empty; None: the queue's."""
    if not texts["retry_kind"]:
        if any(texts.values()):
            errors.add("retry_kind", "choose a backoff, or leave the fields beside it empty")
        return None
    return read_retry({name: text or USUAL[name] for name, text in texts.items()}, errors)


def _typed_from(settings: ScheduleSettings, *, queue: str, name: str) -> dict[str, Any]:
    """Return the form as it is filled in for *settings*."""

    def text(value: float | None) -> str:
        return "" if value is None else duration_text(value)

    return {
        "queue": queue,
        "name": name,
        "cron": settings.cron or "",
        "every_seconds": text(settings.every_seconds),
        "timezone": settings.timezone,
        "payload": settings.payload,
        "tags": tags_text(settings.tags),
        **{one.api_name: getattr(settings, one.api_name) or "" for one in texts(SetBy.SCHEDULE)},
        "priority": settings.priority or "",
        "dedupe_until": settings.dedupe_until,
        "missed": settings.missed,
        "on_expiry": settings.on_expiry,
        "expires_in_seconds": text(settings.expires_in_seconds),
        "keepalive_timeout_in_seconds": text(settings.keepalive_timeout_in_seconds),
        **(retry_texts(settings.retry_strategy) if settings.retry_strategy else {}),
    }


def _page(
    context: RequestContext,
    typed: dict[str, Any],
    errors: FormErrors,
    settings: ScheduleSettings,
    *,
    new: bool,
    runs: Runs | None = None,
) -> Page:
    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401  Field's
        return Field(
            name, label, str(typed.get(name, "")), hint=hint, error=errors.of(name), **more
        )

    names = (
        (
            field("queue", "Queue", required=True, width="l", options=queue_options(context)),
            field("name", "Name", "Letters, digits, dots, dashes, underscores.", required=True,
                  width="l"),
        )
        if new
        else ()
    )  # fmt: skip
    queue, name = str(typed["queue"]), str(typed["name"])
    here = context.url(urls.SCHEDULE, {BACK: context.back}, queue=queue, name=name)
    there = context.url(urls.EDIT_SCHEDULE, queue=queue, name=name)
    paused = " The schedule stays paused." if settings.paused else ""
    crumbs = [schedules_crumb(context)]
    if not new:
        crumbs += [queue_link(context, queue), Link(name, here)]
    return Page("schedule_form.html",
        http_status=400 if errors else 200,
        title="Create a schedule" if new else f"Edit {name} of {queue}",
        crumbs=tuple(crumbs),
        action=context.url(urls.CREATE_SCHEDULE) if new else there,
        back=crumbs[0].url if new else here,
        save="Create schedule" if new else "Save schedule",
        timing=(
            *names,
            field("cron", "Cron", "Minute, hour, day of month, month, weekday; seconds may come "
                  f"first. L, W, # and names work.{paused}", width="l"),
            field("every_seconds", "Or every", f"Instead of cron: {DURATION_EXAMPLES}."),
            field("timezone", "Time zone of cron", "IANA name, e.g. Europe/Madrid",
                  options=_zones()),
        ),
        content=(
            field("payload", "Payload", "JSON, delivered exactly as typed.", kind="textarea",
                  width="l"),
            field("tags", "Tags", "key=value, key=value", width="l"),
        ),
        limits=(
            *(
                field(one.api_name, one.title, f"{one.help[0].upper()}{one.help[1:]}.", width="l")
                for one in texts(SetBy.SCHEDULE)
            ),
            field("dedupe_until", "Key held until", kind="select",
                  options=_choices(KEY_HELD_TEXTS, typed.get("dedupe_until"))),
            field("expires_in_seconds", "Expires after", "Empty: the queue's setting; 0: never."),
            field("keepalive_timeout_in_seconds", "Lease", "Empty: the queue's setting."),
            field("on_expiry", "When expired", "For a run that no worker took in time.",
                  kind="select", options=_choices(ON_EXPIRY_TEXTS, typed.get("on_expiry"))),
            field("missed", "Missed runs", "Runs of the last 24 hours in which no scheduler ran.",
                  kind="select", options=_choices(MISSED_TEXTS, typed.get("missed"))),
            field("priority", "Priority", "In a queue with priorities.", kind="select",
                  options=priority_options(str(typed.get("priority", "")), "default")),
        ),
        retries=tuple(
            one.field(str(typed.get(one.name, "")), errors.of(one.name)) for one in OPTIONAL
        ),
        when=when(settings) if runs else "",
        runs=runs,
    )  # fmt: skip


def _held_until(errors: FormErrors, text: str, dedupe_key: str | None) -> DedupeUntil:
    until = errors.one_of("dedupe_until", text, DedupeUntil, DedupeUntil.END)
    if until is DedupeUntil.START and dedupe_key is None:
        errors.add("dedupe_until", "needs a dedupe key")
    return until


def _choices(texts: Mapping[Any, str], chosen: object) -> tuple[Option, ...]:
    return tuple(Option(value, text, value == chosen) for value, text in texts.items())


def _zones() -> tuple[Option, ...]:
    known = available_timezones()
    return tuple(Option(zone, zone) for zone in _ZONES if zone in known)
