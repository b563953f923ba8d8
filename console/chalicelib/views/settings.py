"""The settings of a queue: a form, a page with the changes, and then the change.

Only fields that were edited since the form was opened change.  If another person has saved the
settings since then, the page shows both versions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, VersionMismatch
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.shared.queue_checks import checked_settings

from .. import formatting, urls
from ..forms import FormErrors, number_of_ours
from ..pages import Flash, Page
from ..parts import Choice, Confirm, Hidden, Link
from ..push_fields import FIELDS
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from ..setting_fields import GROUPS, LABELS, as_shown, read_settings, texts_of
from .navigation import crumbs

Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting before and after; ``theirs`` is a value that another person has saved since."""

    name: str
    before: str
    theirs: str | None
    after: str | None


@routes.get(urls.SETTINGS, Permission.ADMINISTER)
def ask(context: RequestContext) -> Reply:
    """Show the settings to be edited."""
    queue = context.use.queues.get(context.queue)
    texts = _texts(context, queue)
    typed = {name: context.request.given(name, text) for name, text in texts.items()}
    version = number_of_ours(context.request.given("version"), queue.version)
    return _form(context, typed, FormErrors(), base={**texts, **_base(context)}, version=version)


@routes.post(urls.SETTINGS, Permission.ADMINISTER)
def save(context: RequestContext) -> Reply:
    """Show what would change, or save it."""
    queue = context.use.queues.get(context.queue)
    stored = _texts(context, queue)
    base = {**stored, **_base(context)}
    typed = {name: context.request.given(name, base[name]).strip() for name in stored}
    meant = {name: as_shown(name, text) for name, text in typed.items()}
    mine = {name: text for name, text in meant.items() if text not in (base[name], stored[name])}
    version = number_of_ours(context.request.given("version"), queue.version)
    errors = FormErrors()
    settings = read_settings({**stored, **mine}, queue.settings, errors)
    _check(context, queue, settings, errors)
    if errors:
        return _form(context, typed, errors, base=base, version=version)
    if context.request.given("confirmed") and version == queue.version:
        try:
            saved = context.use.queues.replace(context.queue, settings, version=version)
        except VersionMismatch:
            queue = context.use.queues.get(context.queue)
        else:
            done = Flash("done", f"Settings of {context.queue} saved as version {saved.version}.")
            return Redirect(_tab(context), done)
    return _diff(context, queue, base=base, mine=mine, version=version)


def _texts(context: RequestContext, queue: Queue) -> dict[str, str]:
    """Return the text of each field, without queues that the visitor may not see."""

    def known(queue: str | None) -> str | None:
        return queue if queue is not None and context.allows(Permission.READ, queue) else None

    settings, on_end, alerts = queue.settings, queue.settings.on_end, queue.settings.alerts
    if on_end is not None:
        settings = replace(settings, on_end=replace(on_end, queue=known(on_end.queue)))
    if alerts is not None:
        settings = replace(settings, alerts=replace(alerts, queue=known(alerts.queue)))
    return texts_of(settings)


def _check(
    context: RequestContext, queue: Queue, settings: QueueSettings, errors: FormErrors
) -> None:
    """Add to *errors* what the deployment and other queues have against *settings*."""
    alone = replace(settings, target=None, on_end=None, alerts=None)
    for part in (
        replace(alone, target=settings.target),
        replace(alone, on_end=settings.on_end),
        replace(alone, alerts=settings.alerts),
    ):
        try:
            checked_settings(context.use.queues, queue.name, part, queue)
        except InvalidRequest as error:
            for wrong in error.errors:
                name = FIELDS.get(wrong.field, wrong.field)
                errors.add(name, wrong.message.removeprefix(f"{wrong.field} "))


def _base(context: RequestContext) -> Texts:
    """Return the form's values when it was opened: only to see what was edited, not trusted."""
    try:
        found = json.loads(context.request.given("opened_with") or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: str(text) for name, text in found.items() if name in LABELS}


def _form(
    context: RequestContext, texts: Texts, errors: FormErrors, *, base: Texts, version: int
) -> Page:
    return Page(
        "settings.html",
        title=f"Edit settings of {context.queue}",
        http_status=400 if errors else 200,
        crumbs=crumbs(context, context.queue),
        action=context.url(urls.SETTINGS, queue=context.queue),
        back=_tab(context),
        hidden=_carried(base, version),
        groups=tuple(
            (title, tuple(one.field(texts[one.name], errors.of(one.name)) for one in settings))
            for title, settings in GROUPS
        ),
    )


def _tab(context: RequestContext) -> str:
    """Return the tab of the queue that shows its settings, or the page that led here."""
    return context.back or context.url(urls.QUEUE, {"tab": "settings"}, queue=context.queue)


def _carried(base: Texts, version: int) -> tuple[Hidden, ...]:
    text = json.dumps({**base}, ensure_ascii=False, separators=(",", ":"))
    return Hidden("opened_with", text), Hidden("version", str(version))


def _diff(context: RequestContext, queue: Queue, *, base: Texts, mine: Texts, version: int) -> Page:
    stored = _texts(context, queue)
    theirs = {name: text for name, text in stored.items() if text != base[name]}
    conflict = version != queue.version
    rows = tuple(
        Difference(LABELS[name], base[name], theirs.get(name), mine.get(name))
        for name in stored
        if name in mine or name in theirs
    )
    here = context.url(urls.QUEUE, queue=context.queue)
    changes = formatting.count_of(len(mine), "setting")
    summary = f"{changes} of {context.queue} will change."
    if conflict:
        summary = (
            f"Nothing is saved yet. Another user has changed {context.queue}, from version "
            f"{version} to {queue.version}. Saving overwrites {changes} and keeps the rest of "
            "their changes."
        )
    if not mine:
        summary = "Nothing will change."
    over = f" over version {queue.version}" if conflict else ""
    form = Confirm(
        action=context.url(urls.SETTINGS, queue=context.queue),
        choices=(Choice("", f"Save {changes}{over}", conflict),),
        back=Link("Cancel", here),
        hidden=(
            *_carried(stored, queue.version),
            Hidden("confirmed", "yes"),
            *(Hidden(name, text) for name, text in mine.items()),
        ),
    )
    return Page(
        "settings_diff.html",
        title=f"Change {context.queue}",
        http_status=409 if conflict and context.request.given("confirmed") else 200,
        crumbs=crumbs(context, context.queue),
        summary=summary,
        conflict=conflict,
        rows=rows,
        form=form if mine else None,
        again=Link("Edit the stored settings", context.url(urls.SETTINGS, queue=context.queue)),
    )
