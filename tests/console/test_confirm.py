"""Asking before acting: every action that has a page of its own asks in the same way."""

from collections.abc import Callable

import pytest

from headrace.domain.access import Role
from headrace.domain.schedule import ScheduleSettings
from headrace.ops.operators.keys import BOOTSTRAP
from tests.console.conftest import Browser


def _task(browser: Browser) -> str:
    return browser.kill("empty")


def _key(browser: Browser) -> str:
    return browser.use.keys.create(BOOTSTRAP, "station", Role.WORKER, ("*",)).key.id


def _schedule(browser: Browser) -> str:
    browser.use.schedules.put("mail", "nightly", ScheduleSettings(cron="0 3 * * *"))
    return "nightly"


_QUESTIONS: list[tuple[str, Callable[[Browser], str], str, bool]] = [
    ("/console/queues/mail/purge", lambda _: "", "/console/queues/mail", True),
    ("/console/queues/mail/delete", lambda _: "", "/console/queues/mail", True),
    ("/console/tasks/{}/restart", _task, "/console/tasks/{}", False),
    ("/console/tasks/{}/move", _task, "/console/tasks/{}", False),
    ("/console/tasks/{}/delete", _task, "/console/tasks/{}", True),
    ("/console/tasks/{}/enqueue", _task, "/console/tasks/{}", False),
    ("/console/keys/{}/rotate", _key, "/console/keys", False),
    ("/console/keys/{}/revoke", _key, "/console/keys", True),
    ("/console/queues/mail/schedules/{}/pause", _schedule,
     "/console/queues/mail/schedules/{}", False),
    ("/console/queues/mail/schedules/{}/delete", _schedule,
     "/console/queues/mail/schedules/{}", True),
    ("/console/create-queue", lambda _: "", "/console", False),
    ("/console/create-key", lambda _: "", "/console/keys", False),
]  # fmt: skip


@pytest.mark.parametrize(("path", "prepare", "back", "grave"), _QUESTIONS)
def test_a_question_has_a_way_out_before_one_button_that_says_what_it_does(
    filled: Browser, path: str, prepare: Callable[[Browser], str], back: str, *, grave: bool
) -> None:
    name = prepare(filled)
    main = filled.get(path.format(name)).page.one("main")
    form = main.one("form", class_="confirm")
    out, button = form.one("div", class_="buttons").all("a") + form.all("button")

    assert form.attributes["action"] == path.format(name)
    assert (out.text, out.attributes["href"]) == ("Cancel", back.format(name))
    assert button.text not in ("", "OK", "Yes")
    assert button.has({"class_": "danger"}) is grave
    assert len(main.all("h1")) == 1
