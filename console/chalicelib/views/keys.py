"""Keys: made, listed, rotated and revoked."""

from datetime import timedelta
from typing import Final

from headrace.domain import limits
from headrace.domain.access import Permission, Role, ShownKey
from headrace.domain.errors import Forbidden, InvalidRequest, KeyExists
from headrace.ops.operators.keys import IssuedKey

from .. import formatting, urls
from ..cells import Cell, Code, Dim, Note
from ..forms import NO_ERRORS, FormErrors
from ..pages import Flash, Page
from ..parts import Empty, Fact, Field, Link, Option
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, times
from .confirm import ask, once
from .list_page import list_page
from .list_search import ListSearch
from .navigation import crumb

_NAMED: Final = 5  # schedules that a question names
_OVERLAPS: Final = {
    "0": "now",
    "600": "in 10 minutes",
    "3600": "in an hour",
    "28800": "in 8 hours",
    "86400": "in a day",
}
_NOTE: Final = (
    "The time of the last use is right to the hour. An expired key is listed for 90 days. The admin"
    " key of the deployment is not listed: it is set in the environment."
)
_MEANS: Final = {
    Role.VIEWER: "looks, but not at payloads",
    Role.OPERATOR: "acts on tasks and queues",
    Role.PRODUCER: "enqueues",
    Role.WORKER: "enqueues, takes, reports",
    Role.ADMIN: "everything, also keys",
}


def _columns(context: RequestContext) -> Columns[ShownKey]:
    def link(verb: str, route: str, key: ShownKey, *, danger: bool = False) -> Link:
        url = context.url(route, context.onward, id=key.id)
        return Link(f"{verb}…", url, danger=danger, label=f"{verb} {key.name}, {key.prefix}")

    def expiry(key: ShownKey) -> Cell:
        if key.expires_at is None:
            return Dim("never")
        return ("expired", key.expires_at) if key.is_expired(context.now) else key.expires_at

    return {
        "name": Column(
            "Name",
            lambda key: (key.name, key.id),
            lambda key: (key.name, Note("this session") if _own(context, key) else None),
        ),
        "role": Column("Role", lambda key: list(Role).index(key.role), lambda key: key.role.value),
        "queues": Column(
            "Queues", lambda key: key.queues, lambda key: tuple(map(Code, key.queues))
        ),
        "prefix": Column("Begins with", cell=lambda key: Code(key.prefix)),
        "created": times("Created", lambda key: key.created_at),
        "used": times(
            "Last used", lambda key: key.last_used_at, lambda key: key.last_used_at or Dim("never")
        ),
        "expires": times("Expires", lambda key: key.expires_at, expiry),
        "rotate": Column(
            "Rotate",
            cell=lambda key: (
                None if key.is_expired(context.now) else link("Rotate", urls.ROTATE_KEY, key)
            ),
            hidden=True,
        ),
        "revoke": Column(
            "Revoke",
            cell=lambda key: link("Revoke", urls.REVOKE_KEY, key, danger=True),
            hidden=True,
        ),
    }


@routes.get(urls.KEYS, Permission.ADMINISTER)
def show(context: RequestContext) -> Reply:
    """Show a page of keys."""
    wanted: ListSearch[ShownKey] = ListSearch(context, "keys")
    page = wanted.look(
        lambda where, limit, cursor: context.use.keys.list(
            context.by, where=where, limit=limit, cursor=cursor
        )
    )
    return list_page(
        context,
        wanted,
        page.shown,
        _columns(context),
        page.shown,
        title="Keys",
        usual="created",
        empty=Empty(
            "No keys yet. The admin key of the deployment is not listed.",
            "headrace key create station --role worker",
        ),
        note=_NOTE,
        buttons=(Link("Create a key", context.url(urls.CREATE_KEY, context.onward)),),
    )


@routes.post(urls.CREATE_KEY, Permission.ADMINISTER)
def create(context: RequestContext) -> Reply:
    """Make a key and show its secret, this once; or say what is wrong."""
    errors = FormErrors()
    name = context.request.given("name").strip()
    if not name:
        errors.add("name", "is needed")
    errors.text("name", name, limits.KEY_NAME_BYTES)
    role = _role(context, errors)
    queues = tuple(context.request.given("queues").replace(",", " ").split())
    least, most = limits.PATTERNS
    if not least <= len(queues) <= most:
        errors.add("queues", f"must be {least} to {most} names or patterns")
    elif any(limits.utf8_bytes(pattern) > limits.PATTERN_BYTES for pattern in queues):
        errors.add("queues", f"must be of at most {limits.PATTERN_BYTES} bytes each")
    expires_at = errors.instant("expires_at", context.request.given("expires_at"))
    if not errors:
        if not context.first_time():
            return _sent_before(context)
        try:
            made = context.use.keys.create(context.by, name, role, queues, expires_at=expires_at)
        except (InvalidRequest, Forbidden, KeyExists) as error:
            for wrong in error.errors:
                errors.add(wrong.field.partition("[")[0], wrong.message)
            if not errors:
                raise
            return ask_new(context, errors, status=error.status)
        return _shown(context, "The new key", made)
    return ask_new(context, errors, status=400)


@routes.post(urls.ROTATE_KEY, Permission.ADMINISTER)
def rotate(context: RequestContext) -> Reply:
    """Give the key another secret and show it, this once."""
    errors = FormErrors()
    overlap = context.request.given("overlap")
    if overlap not in _OVERLAPS:
        errors.add("overlap", f"must be one of {', '.join(_OVERLAPS.values())}")
        return ask_rotate(context, errors)
    key_id = context.request.names["id"]
    context.use.keys.get(context.by, key_id)
    if not context.first_time():
        return _sent_before(context)
    made = context.use.keys.rotate(context.by, key_id, overlap=timedelta(seconds=int(overlap)))
    ends = Fact("Previous secret", f"stops working {_OVERLAPS[overlap]}")
    return _shown(context, "New secret", made, ends)


@routes.get(urls.REVOKE_KEY, Permission.ADMINISTER)
def ask_revoke(context: RequestContext) -> Reply:
    """Ask whether a key is to stop working."""
    key = context.use.keys.get(context.by, context.request.names["id"])
    own = " You are signed in with it: this session ends." if _own(context, key) else ""
    used = f"last used {formatting.ago(key.last_used_at, context.now)}" if key.last_used_at else (
        "not used yet"
    )  # fmt: skip
    return ask(
        _crumbs(context),
        title=f"Revoke {key.name}?",
        question=f"Revoke key {key.name}?",
        detail=f"A {key.role.value} key for {', '.join(key.queues)}, {used}. Requests with it "
        "are refused within 10 seconds, or a minute on AWS. "
        f"This cannot be undone.{own}{_goes_on(context, key)}",
        action=context.url(urls.REVOKE_KEY, id=key.id),
        button="Revoke this key",
        danger=True,
    )


@routes.post(urls.REVOKE_KEY, Permission.ADMINISTER)
def revoke(context: RequestContext) -> Reply:
    """Revoke it."""
    key = context.use.keys.get(context.by, context.request.names["id"])
    context.use.keys.revoke(context.by, key.id)
    back = context.back or context.url(urls.KEYS)
    return Redirect(back, Flash("done", f"Key {key.name} is revoked."))


def _goes_on(context: RequestContext, key: ShownKey) -> str:
    """Say what happens to the schedules and actions of a key that is revoked."""
    found = context.use.keys.traces(context.by, key.id)
    texts = []
    if found.schedules:
        named = [f"{queue}/{name}" for queue, name in found.schedules]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        texts.append(f" Its schedules continue: {', '.join(named[:_NAMED])}{more}.")
    if found.actions:
        number = formatting.count_of(len(found.actions), "action")
        texts.append(f" {number} that it started will be paused.")
    return "".join(texts)


def _own(context: RequestContext, key: ShownKey) -> bool:
    return key.id == context.by.key_id


def _shown(context: RequestContext, title: str, made: IssuedKey, *more: Fact) -> Page:
    key = made.key
    return Page(
        "new_key.html",
        title=title,
        crumbs=_crumbs(context),
        secret=made.secret,
        facts=(
            Fact("Name", key.name),
            Fact("Role", f"{key.role.value}: {_MEANS[key.role]}"),
            Fact("Queues", ", ".join(key.queues)),
            Fact("Expires", formatting.clock(key.expires_at) if key.expires_at else "never"),
            *more,
        ),
        back=context.back or context.url(urls.KEYS),
    )


@routes.get(urls.ROTATE_KEY, Permission.ADMINISTER)
def ask_rotate(context: RequestContext, errors: FormErrors = NO_ERRORS) -> Reply:
    """Ask how long the secret before is to work."""
    key = context.use.keys.get(context.by, context.request.names["id"])
    given = context.request.given("overlap", "3600")
    ends = Field(
        "overlap", "The previous secret stops working", given, "select", width="l",
        error=errors.of("overlap"),
        options=tuple(Option(value, text, value == given) for value, text in _OVERLAPS.items()),
    )  # fmt: skip
    return ask(
        _crumbs(context),
        title=f"Rotate {key.name}",
        question=f"Rotate key {key.name}?",
        detail="It gets another secret, shown once, on the next page; its name, role, queues "
        "and expiry stay. At most two secrets work; an older one stops now.",
        action=context.url(urls.ROTATE_KEY, id=key.id),
        button="Rotate this key",
        fields=(ends,),
        hidden=(once(),),
        status=400 if errors else 200,
    )


def _sent_before(context: RequestContext) -> Redirect:
    """Lead to the list instead of doing the same again: the page with the secret was reloaded."""
    text = (
        "This form was sent before, so nothing was done again. A secret is shown only once: if it "
        "is lost, rotate the key."
    )
    return Redirect(context.back or context.url(urls.KEYS), Flash("failed", text))


def _crumbs(context: RequestContext) -> tuple[Link, ...]:
    return (crumb(context, "Keys", urls.KEYS),)


def _role(context: RequestContext, errors: FormErrors) -> Role:
    try:
        return Role(context.request.given("role"))
    except ValueError:
        errors.add("role", f"must be one of {', '.join(Role)}")
        return Role.VIEWER


@routes.get(urls.CREATE_KEY, Permission.ADMINISTER)
def ask_new(context: RequestContext, errors: FormErrors = NO_ERRORS, *, status: int = 200) -> Reply:
    """Ask what the new key is for."""
    given = context.request.given
    chosen = given("role", Role.VIEWER)
    fields = (
        Field("name", "Name", given("name"), required=True, width="l", error=errors.of("name"),
              hint="For people; the audit knows the key by it."),
        Field("role", "Role", chosen, "select", width="l", error=errors.of("role"), options=tuple(
            Option(role.value, f"{role.value}: {means}", role.value == chosen)
            for role, means in _MEANS.items()
        )),
        Field("queues", "Queues", given("queues", ", ".join(context.by.patterns)), width="l",
              required=True, error=errors.of("queues"),
              hint="Names or patterns, with commas between; * is any text."),
        Field("expires_at", "Expires, UTC", given("expires_at"), "datetime-local",
              error=errors.of("expires_at"), hint="Empty: never."),
    )  # fmt: skip
    return ask(
        _crumbs(context),
        question="Create a key",
        detail="Its secret is shown once, on the next page. A key cannot be wider than yours.",
        action=context.url(urls.CREATE_KEY),
        button="Create key",
        fields=fields,
        hidden=(once(),),
        status=status,
    )
