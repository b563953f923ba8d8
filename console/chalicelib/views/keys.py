"""Keys: made, listed and revoked."""

from dataclasses import replace
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
from headrace.domain.errors import Forbidden, InvalidRequest
from headrace.ops.key_body import Key

routes: Final = Routes()
_PAGE: Final = 50
_NAME_BYTES: Final = 128
_PATTERNS: Final = 100
_PATTERN_BYTES: Final = 256
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
    errors.text("name", name, _NAME_BYTES)
    role = _role(visit, errors)
    queues = tuple(visit.request.given("queues").replace(",", " ").split())
    if not 1 <= len(queues) <= _PATTERNS:
        errors.add("queues", f"must be 1 to {_PATTERNS} names or patterns")
    elif any(limits.utf8_bytes(pattern) > _PATTERN_BYTES for pattern in queues):
        errors.add("queues", f"must be of at most {_PATTERN_BYTES} bytes each")
    if not errors:
        try:
            made = visit.use.keys.create(visit.by, name, role, queues)
        except (InvalidRequest, Forbidden) as error:
            for wrong in error.errors:
                errors.add(wrong.field.partition("[")[0], wrong.message)
            if not errors:
                raise
            return replace(_form(visit, errors), http_status=error.status)
        return NewKeyPage(
            title="The new key",
            crumbs=(_crumb(visit),),
            secret=made.secret,
            facts=(
                Fact("Name", name),
                Fact("Role", f"{role.value}: {_MEANS[role]}"),
                Fact("Queues", ", ".join(queues)),
            ),
            back=visit.url(urls.KEYS),
        )
    return replace(_form(visit, errors), http_status=400)


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
        own=_own(visit, key),
        revoke=visit.url(urls.REVOKE_KEY, id=key.id),
    )


def _own(visit: Visit, key: Key) -> bool:
    return key.id == visit.by.key_id


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
