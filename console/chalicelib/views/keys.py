"""Keys: made, listed, rotated and revoked."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from console.chalicelib import urls, words
from console.chalicelib.forms import Errors
from console.chalicelib.pages.acting import ConfirmPage, FormPage
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.keys import KeyRow, KeysPage, NewKeyPage
from console.chalicelib.pages.parts import Confirm, Empty, Fact, Field, Link, Option, Pager
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.visit import Visit
from headrace.domain import limits
from headrace.domain.access import Permission, Role
from headrace.domain.errors import Forbidden, InvalidRequest, KeyExists
from headrace.ops.key_body import Key
from headrace.ops.keys import NewKey

routes: Final = Routes()
_PAGE: Final = 50
_OVERLAPS: Final = {
    "0": "at once",
    "600": "in 10 minutes",
    "3600": "in an hour",
    "28800": "in 8 hours",
    "86400": "in a day",
}
_MEANS: Final = {
    Role.VIEWER: "looks at everything but payloads",
    Role.OPERATOR: "looks, restarts, moves, deletes, pauses; schedules and audit",
    Role.PRODUCER: "enqueues",
    Role.WORKER: "enqueues, dequeues and reports",
    Role.ADMIN: "everything; queues and keys",
}


@routes.get(urls.KEYS, Permission.ADMINISTER)
def show(visit: Visit) -> Reply:
    """Show a page of keys."""
    asked = visit.request.asked("cursor")
    page = visit.use.keys.list(visit.by, limit=_PAGE, cursor=asked or None)
    return KeysPage(
        title="Keys",
        rows=tuple(_row(visit, key) for key in page.keys),
        create=visit.url(urls.CREATE_KEY),
        pager=Pager(
            words.count_of(len(page.keys), "key"),
            first=visit.url(urls.KEYS) if asked else None,
            next=visit.url(urls.KEYS, {"cursor": page.cursor}) if page.cursor else None,
        ),
        empty=Empty(
            "Keys would be here. The deployment's own admin key is not one of them.",
            "headrace key create station --role worker",
        ),
    )


@routes.get(urls.CREATE_KEY, Permission.ADMINISTER)
def ask(visit: Visit) -> Reply:
    """Ask what the new key is for."""
    return _form(visit, Errors())


@routes.post(urls.CREATE_KEY, Permission.ADMINISTER)
def create(visit: Visit) -> Reply:
    """Make a key and show its secret, this once; or say what is wrong."""
    errors = Errors()
    name = visit.request.given("name").strip()
    if not name:
        errors.add("name", "is needed")
    errors.text("name", name, limits.KEY_NAME_BYTES)
    role = _role(visit, errors)
    queues = tuple(visit.request.given("queues").replace(",", " ").split())
    least, most = limits.PATTERNS
    if not least <= len(queues) <= most:
        errors.add("queues", f"must be {least} to {most} names or patterns")
    elif any(limits.utf8_bytes(pattern) > limits.PATTERN_BYTES for pattern in queues):
        errors.add("queues", f"must be of at most {limits.PATTERN_BYTES} bytes each")
    expires_at = errors.instant("expires_at", visit.request.given("expires_at"))
    if not errors:
        try:
            made = visit.use.keys.create(visit.by, name, role, queues, expires_at=expires_at)
        except (InvalidRequest, Forbidden, KeyExists) as error:
            for wrong in error.errors:
                errors.add(wrong.field.partition("[")[0], wrong.message)
            if not errors:
                raise
            return replace(_form(visit, errors), http_status=error.status)
        return _shown(visit, "The new key", made)
    return replace(_form(visit, errors), http_status=400)


@routes.get(urls.ROTATE_KEY, Permission.ADMINISTER)
def ask_rotate(visit: Visit) -> Reply:
    """Ask how long the secret before is to work."""
    return _rotation(visit, Errors())


@routes.post(urls.ROTATE_KEY, Permission.ADMINISTER)
def rotate(visit: Visit) -> Reply:
    """Give the key another secret and show it, this once."""
    errors = Errors()
    overlap = visit.request.given("overlap")
    if overlap not in _OVERLAPS:
        errors.add("overlap", f"must be one of {', '.join(_OVERLAPS.values())}")
        return replace(_rotation(visit, errors), http_status=400)
    key_id = visit.request.names["id"]
    made = visit.use.keys.rotate(visit.by, key_id, overlap=timedelta(seconds=int(overlap)))
    ends = Fact("The secret before", f"stops working {_OVERLAPS[overlap]}")
    return _shown(visit, "The new secret", made, ends)


@routes.get(urls.REVOKE_KEY, Permission.ADMINISTER)
def ask_revoke(visit: Visit) -> Reply:
    """Ask whether a key is to stop working."""
    key = visit.use.keys.get(visit.by, visit.request.names["id"])
    own = " You are signed in with it: this session ends." if _own(visit, key) else ""
    used = f"last used {words.ago(key.last_used_at, visit.now)}" if key.last_used_at else (
        "not used yet"
    )  # fmt: skip
    return ConfirmPage(
        title=f"Revoke {key.name}?",
        crumbs=(_crumb(visit),),
        question=f"Revoke key {key.name}?",
        tells=f"A {key.role.value} key for {', '.join(key.queues)}, {used}. Whoever has it is shut "
        f"out within 10 seconds, a minute behind a caching authorizer. It cannot be undone.{own}",
        samples=(),
        more="",
        form=Confirm(
            action=visit.url(urls.REVOKE_KEY, id=key.id),
            button="Revoke this key",
            back=visit.url(urls.KEYS),
            danger=True,
        ),
        back=Link("Back to the keys", visit.url(urls.KEYS)),
    )


@routes.post(urls.REVOKE_KEY, Permission.ADMINISTER)
def revoke(visit: Visit) -> Reply:
    """Revoke it."""
    key = visit.use.keys.get(visit.by, visit.request.names["id"])
    visit.use.keys.revoke(visit.by, key.id)
    return Redirect(visit.url(urls.KEYS), Flash("done", f"Key {key.name} is revoked."))


def _row(visit: Visit, key: Key) -> KeyRow:
    return KeyRow(
        name=key.name,
        prefix=key.prefix,
        role=key.role.value,
        queues=key.queues,
        created_at=key.created_at,
        last_used_at=key.last_used_at,
        expires_at=key.expires_at,
        over=key.expired(visit.now),
        own=_own(visit, key),
        rotate=visit.url(urls.ROTATE_KEY, id=key.id),
        revoke=visit.url(urls.REVOKE_KEY, id=key.id),
    )


def _own(visit: Visit, key: Key) -> bool:
    return key.id == visit.by.key_id


def _shown(visit: Visit, title: str, made: NewKey, *more: Fact) -> NewKeyPage:
    key = made.key
    return NewKeyPage(
        title=title,
        crumbs=(_crumb(visit),),
        secret=made.secret,
        facts=(
            Fact("Name", key.name),
            Fact("Role", f"{key.role.value}: {_MEANS[key.role]}"),
            Fact("Queues", ", ".join(key.queues)),
            Fact("Expires", words.clock(key.expires_at) if key.expires_at else "never"),
            *more,
        ),
        back=visit.url(urls.KEYS),
    )


def _rotation(visit: Visit, errors: Errors) -> ConfirmPage:
    key = visit.use.keys.get(visit.by, visit.request.names["id"])
    given = visit.request.given("overlap", "3600")
    ends = Field(
        "overlap", "The secret before stops working", given, "select", width="l",
        error=errors.of("overlap"),
        options=tuple(Option(value, text, value == given) for value, text in _OVERLAPS.items()),
    )  # fmt: skip
    return ConfirmPage(
        title=f"Rotate {key.name}",
        crumbs=(_crumb(visit),),
        question=f"Rotate key {key.name}?",
        tells="It gets another secret, shown once, on the next page; its name, role, queues and "
        "expiry stay. Two of its secrets work at most: one from before the last rotation ends now.",
        samples=(),
        more="",
        form=Confirm(
            action=visit.url(urls.ROTATE_KEY, id=key.id),
            button="Rotate this key",
            back=visit.url(urls.KEYS),
            fields=(ends,),
        ),
        back=Link("Back to the keys", visit.url(urls.KEYS)),
    )


def _crumb(visit: Visit) -> Link:
    return Link("Keys", visit.url(urls.KEYS))


def _role(visit: Visit, errors: Errors) -> Role:
    try:
        return Role(visit.request.given("role"))
    except ValueError:
        errors.add("role", f"must be one of {', '.join(Role)}")
        return Role.VIEWER


def _form(visit: Visit, errors: Errors) -> FormPage:
    given = visit.request.given
    chosen = given("role", Role.VIEWER)
    fields = (
        Field("name", "Name", given("name"), required=True, width="l", error=errors.of("name"),
              hint="For people; the audit knows the key by it."),
        Field("role", "Role", chosen, "select", width="l", error=errors.of("role"), options=tuple(
            Option(role.value, f"{role.value}: {means}", role.value == chosen)
            for role, means in _MEANS.items()
        )),
        Field("queues", "Queues", given("queues", ", ".join(visit.by.patterns)), width="l",
              required=True, error=errors.of("queues"),
              hint="Names or patterns, with commas between; * is any text."),
        Field("expires_at", "Expires, UTC", given("expires_at"), "datetime-local",
              error=errors.of("expires_at"), hint="Empty: never."),
    )  # fmt: skip
    return FormPage(
        title="Create a key",
        crumbs=(_crumb(visit),),
        tells="Its secret is shown once, on the next page. A key cannot be wider than yours.",
        form=Confirm(
            action=visit.url(urls.CREATE_KEY),
            button="Create key",
            back=visit.url(urls.KEYS),
            fields=fields,
        ),
    )
