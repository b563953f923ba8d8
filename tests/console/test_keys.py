"""Keys: their secret is shown once, and none is wider than the one that makes it."""

import re

import pytest

from headrace.domain.access import Role
from headrace.domain.errors import Unauthenticated
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.schedule import ScheduleSettings
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.store.call_scope import acting
from tests.console.conftest import Browser, Shown

SECRET = re.compile(r"hr_[0-9a-f]{20}_[0-9a-f]{40}")


def made(browser: Browser, **fields: str) -> Shown:
    form = browser.get("/console/create-key").page
    return browser.submit(form, "/create-key", **{"name": "station", "role": "worker", **fields})


def test_a_secret_is_shown_once_on_a_page_that_is_not_kept(admin: Browser) -> None:
    shown = made(admin, queues="mail, ngsi.*")
    [secret] = set(SECRET.findall(shown.body))

    assert shown.status == 200
    assert shown.headers["cache-control"] == "no-store"
    assert secret not in shown.url
    assert "location" not in shown.headers
    assert not any(secret in morsel.value for morsel in shown.cookies.values())
    later = admin.get("/console/keys")
    assert not SECRET.search(later.body)
    for expected in ("station", "worker", "mail ngsi.*", "never", secret[:23]):
        assert expected in later.text
    principal = admin.use.keys.verify(secret)
    assert (principal.name, principal.role) == ("station", Role.WORKER)
    assert principal.patterns == ("mail", "ngsi.*")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("name", "", "is needed"),
        ("name", "bootstrap", "is the name of the deployment's own key"),
        ("expires_at", "2026-11-21T08:00", "must be in the future"),
        ("role", "king", "must be one of viewer, operator"),
        ("queues", "", "must be 1 to 100"),
    ],
)
def test_a_wrong_field_is_named(admin: Browser, field: str, value: str, says: str) -> None:
    refused = made(admin, **{field: value})

    assert refused.status == 400
    wrong = refused.page.one("select" if field == "role" else "input", name=field)
    assert says in refused.page.one("p", id=wrong.attributes["aria-describedby"]).text
    assert admin.api_keys() == ()


def test_a_key_wider_than_ones_own_is_refused_beside_its_field(admin: Browser) -> None:
    part = admin.as_role(Role.ADMIN, "ngsi.*")
    refused = made(part, queues="ngsi.notify, mail")

    assert refused.status == 403
    assert "this key is not for queue mail" in refused.page.one("p", class_="wrong").text
    assert made(part, queues="ngsi.notify").status == 200


def test_a_key_is_rotated_and_its_secret_is_shown_once(admin: Browser) -> None:
    [before] = set(SECRET.findall(made(admin, queues="mail").body))
    page = admin.get("/console/keys").page
    [link] = [a.attributes["href"] for a in page.all("a") if a.text == "Rotate…"]
    confirm = admin.get(link)
    assert "Rotate key station?" in confirm.text

    shown = admin.submit(confirm.page, "/rotate")

    [secret] = set(SECRET.findall(shown.body))
    assert shown.headers["cache-control"] == "no-store"
    assert "Previous secret stops working in an hour" in shown.text
    assert secret != before
    assert {admin.use.keys.verify(one).name for one in (before, secret)} == {"station"}
    assert not SECRET.search(admin.get("/console/keys").body)

    admin.submit(admin.get(link).page, "/rotate", overlap="0")
    for one in (before, secret):
        with pytest.raises(Unauthenticated):
            admin.use.keys.verify(one)
    refused = admin.submit(admin.get(link).page, "/rotate", overlap="7")
    assert refused.status == 400
    assert "must be one of now" in refused.text


def test_a_key_is_revoked_after_a_question(admin: Browser) -> None:
    [secret] = set(SECRET.findall(made(admin).body))
    page = admin.get("/console/keys").page
    [link] = [a.attributes["href"] for a in page.all("a") if a.text == "Revoke…"]
    confirm = admin.get(link)
    assert "Revoke key station?" in confirm.text
    assert "A worker key for *, not used yet." in confirm.text

    done = admin.follow(admin.submit(confirm.page, "/revoke"))
    assert "Key station is revoked." in done.text
    assert admin.api_keys() == ()
    assert admin.get(link).status == 404
    assert secret not in done.body


def test_whoever_revokes_the_own_key_is_told_and_signed_out(admin: Browser) -> None:
    other = admin.as_role(Role.ADMIN)
    [key] = admin.api_keys()
    confirm = other.get(f"/console/keys/{key.id}/revoke")

    assert "You are signed in with it: this session ends." in confirm.text
    other.submit(confirm.page, "/revoke")
    assert other.get("/console").status == 303


def test_the_question_before_a_key_is_revoked_says_what_goes_on(admin: Browser) -> None:
    admin.use.queues.create("mail", QueueSettings())
    issued = admin.use.keys.create(BOOTSTRAP, "op", Role.OPERATOR, ("mail",))
    with acting(admin.use.keys.verify(issued.secret)):
        admin.use.schedules.put("mail", "nightly", ScheduleSettings(cron="0 3 * * *"))
        admin.use.actions.begin_all(BulkAction.RESTART, ["mail"], TaskFilter())

    asked = admin.get(f"/console/keys/{issued.key.id}/revoke")

    assert "Its schedules continue: mail/nightly." in asked.text
    assert "1 action that it started will be paused." in asked.text
