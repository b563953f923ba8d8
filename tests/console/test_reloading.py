"""Reloading the page that follows a form does nothing again: for every form that there is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from console.app import app
from headrace.domain.access import Role
from headrace.domain.operate import BulkAction
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.operators.keys import BOOTSTRAP
from tests.console.conftest import KEY, Browser
from tests.console.test_action_page import decide, look
from tests.console.test_keys import SECRET

HERE: Final = "/console/queues/mail"


@dataclass(frozen=True)
class Sent:
    """A form: the page that has it, how its address ends, and what is typed into it."""

    page: str
    action: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Scenario = Callable[[Browser], Sent]


def _task(browser: Browser) -> str:
    return browser.put("mail", "{}")[0]


def _key(browser: Browser) -> str:
    browser.use.keys.create(BOOTSTRAP, "station", Role.WORKER, ("mail",))
    return next(key.id for key in browser.api_keys() if key.name == "station")


def _schedule(browser: Browser) -> str:
    page = browser.get("/console/create-schedule?queue=mail").page
    made = browser.submit(page, "/create-schedule", name="nightly", cron="0 3 * * *")
    assert made.status == 303, made.text
    return f"{HERE}/schedules/nightly"


def _worker(browser: Browser) -> str:
    beat = WorkerHeartbeat("ada:1", ("mail",), browser.use.now())
    browser.use.workers.alive(beat)
    return "/console/worker/quiet?name=ada%3A1"


def _action(browser: Browser) -> str:
    for _ in range(12):  # more than the first part takes
        browser.put("mail", *["{}"] * 25)
    browser.clock.forward(1)
    seen = look(browser, f"{HERE}?state=READY", "delete")
    return decide(browser, seen, "all").headers["location"].partition("?")[0]


def _deleted(browser: Browser) -> str:
    task = _task(browser)
    asked = browser.get(f"/console/tasks/{task}/delete")
    return browser.submit(asked.page, "/delete").headers["location"]


def _batch(browser: Browser, *, dead: bool = False) -> str:
    browser.use.task_batches.create({}, batch_id="night", total=2)
    [task_id] = browser.put("mail", "{}", batches=("night",))
    if dead:
        browser.use.bulk.by_ids("mail", BulkAction.CANCEL, [task_id])
        browser.record()
    return "/console/workflows/night"


def _ticked(browser: Browser) -> Sent:
    fields = {"action": "delete", "confirmed": "yes", "id": _task(browser)}
    return Sent(HERE, "/mail/selected", fields)


def _indexed(browser: Browser) -> str:
    queue = browser.use.queues.get("mail")
    settings = replace(queue.settings, indexed_fields=("tag:service",))
    browser.use.queues.replace("mail", settings)
    return f"{HERE}?tab=repair"


def _signed_out(browser: Browser) -> str:
    browser.jar.clear()
    return "/console/sign-in"


def _paused(browser: Browser) -> str:
    browser.use.queues.pause("mail")
    return HERE


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "/console/errors": lambda _: Sent("/console/errors", "/console/errors", {"do": "delete"}),
    "/console/tasks/{id}/enqueue": lambda browser: Sent(
        f"/console/tasks/{_task(browser)}/enqueue", "/enqueue", {"confirmed": "yes"}
    ),
    "/console/tasks/{id}/{action}": lambda browser: Sent(
        f"/console/tasks/{_task(browser)}/delete", "/delete"
    ),
    "/console/queues/{queue}/selected": _ticked,
    "/console/worker/{action}": lambda browser: Sent(_worker(browser), "/worker/quiet"),
    "/console/queues/{queue}/settings": lambda _: Sent(
        f"{HERE}/settings", "/settings", {"confirmed": "yes"}
    ),
    "/console/activity/{id}": lambda browser: Sent(_action(browser), "", {"do": "cancel"}),
    "/console/sign-in": lambda browser: Sent(_signed_out(browser), "/sign-in", {"key": KEY}),
    "/console/sign-out": lambda _: Sent("/console", "/sign-out"),
    "/console/queues/{queue}/pause": lambda _: Sent(HERE, "/mail/pause"),
    "/console/queues/{queue}/snooze/{incident}": lambda _: Sent(
        f"{HERE}/snooze/failing", "/snooze/failing"
    ),
    "/console/queues/{queue}/resume": lambda browser: Sent(_paused(browser), "/mail/resume"),
    "/console/queues/{queue}/recount": lambda _: Sent(f"{HERE}?tab=repair", "/mail/recount"),
    "/console/queues/{queue}/reindex": lambda browser: Sent(_indexed(browser), "/mail/reindex"),
    "/console/queues/{queue}/purge": lambda _: Sent(
        f"{HERE}/purge", "/purge", {"tasks": "all", "name": "mail"}
    ),
    "/console/undo": lambda browser: Sent(_deleted(browser), "/console/undo"),
    "/console/queues/{queue}/delete": lambda _: Sent(f"{HERE}/delete", "/delete", {"name": "mail"}),
    "/console/workflows/{id}/cancel": lambda browser: Sent(f"{_batch(browser)}/cancel", "/cancel"),
    "/console/workflows/{id}/recount": lambda browser: Sent(_batch(browser), "/recount"),
    "/console/workflows/{id}/restart": lambda browser: Sent(
        _batch(browser, dead=True), "/night/restart"
    ),
    "/console/queues/{queue}/matching": lambda _: Sent(
        f"{HERE}?state=DEAD", "/mail/matching", {"action": "delete"}
    ),
    "/console/create-queue": lambda _: Sent(
        "/console/create-queue", "/create-queue", {"name": "sms"}
    ),
    "/console/create-schedule": lambda _: Sent(
        "/console/create-schedule?queue=mail",
        "/create-schedule",
        {"name": "nightly", "cron": "0 3 * * *"},
    ),
    "/console/queues/{queue}/schedules/{name}/edit": lambda browser: Sent(
        f"{_schedule(browser)}/edit", "/edit", {"cron": "0 4 * * *"}
    ),
    "/console/queues/{queue}/schedules/{name}/{action}": lambda browser: Sent(
        f"{_schedule(browser)}/run", "/run"
    ),
    "/console/create-key": lambda _: Sent(
        "/console/create-key", "/create-key", {"name": "station"}
    ),
    "/console/keys/{id}/rotate": lambda browser: Sent(
        f"/console/keys/{_key(browser)}/rotate", "/rotate"
    ),
    "/console/keys/{id}/revoke": lambda browser: Sent(
        f"/console/keys/{_key(browser)}/revoke", "/revoke"
    ),
}


def test_every_form_has_its_case() -> None:
    assert {path for path, methods in app.routes.items() if "POST" in methods} == SCENARIOS.keys()


_SHOWN: Final = ("/activity", "/keys", "/schedules", "/queues/mail?limit=250")


def everything(reader: Browser) -> list[str]:
    """Return the text of each page on which a second run of an action would show."""
    bodies = (reader.get(f"/console{path}").body for path in _SHOWN)
    mains = (body[body.index("<main") : body.index("</main>")] for body in bodies)
    return [re.sub("<[^>]*>", "", main) for main in mains]


@pytest.mark.parametrize("route", SCENARIOS)
def test_a_form_is_done_once_however_often_its_page_is_reloaded(
    filled: Browser, route: str
) -> None:
    sent = SCENARIOS[route](filled)
    page = filled.get(sent.page).page
    action = sent.action or sent.page.partition("?")[0]
    if route == "/console/errors":
        page = page.one("table")
    reader = filled.as_role(Role.ADMIN)
    shown = filled.submit(page, action, **sent.fields)
    if shown.status == 303:
        shown = filled.follow(shown)
    assert shown.status == 200, shown.text
    before = everything(reader)

    filled.reload()

    assert everything(reader) == before


def test_a_secret_that_was_shown_works_after_its_page_was_reloaded(admin: Browser) -> None:
    made = admin.submit(admin.get("/console/create-key").page, "/create-key", name="station")
    [first] = set(SECRET.findall(made.body))
    again = admin.follow(admin.reload())
    assert "This form was sent before, so nothing was done again." in again.text
    [key] = admin.api_keys()

    page = admin.get(f"/console/keys/{key.id}/rotate").page
    rotated = admin.submit(page, "/rotate", overlap="3600")
    [second] = set(SECRET.findall(rotated.body))
    for _ in range(3):
        again = admin.reload()
        assert again.status == 303
        assert not SECRET.search(admin.follow(again).body)
        page_again = admin.submit(page, "/rotate", overlap="0")  # back, and sent once more
        assert page_again.status == 303

    assert {admin.use.keys.verify(one).name for one in (first, second)} == {"station"}


def test_a_sign_in_that_led_back_to_a_form_is_done_once(admin: Browser) -> None:
    form = admin.get("/console/create-queue").page
    admin.clock.forward(3_601)  # the session ends
    asked = admin.submit(form, "/create-queue", name="mail")
    assert admin.submit(asked.page, "/sign-in", key=KEY).status == 200

    assert admin.reload().status == 403
    assert admin.get("/console/queues/mail").status == 404
