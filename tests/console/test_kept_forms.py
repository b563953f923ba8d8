"""A session that ends under somebody's hands takes nothing along that was typed."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from headrace.store.records.keys import LASTS
from tests.console.conftest import KEY, Browser, Shown

OVER = (LASTS + timedelta(minutes=1)).total_seconds()


def sign_in_again(browser: Browser, shown: Shown, key: str = KEY) -> Shown:
    assert (shown.status, shown.page.one("h1").text) == (401, "Sign in")
    return browser.submit(shown.page, "/sign-in", key=key)


def test_what_was_typed_is_there_after_the_sign_in(admin: Browser) -> None:
    form = admin.get("/console/create-queue").page
    admin.clock.forward(OVER)
    stopped = admin.submit(form, "/create-queue", name="mail", description="a <b>\nc", history="2d")
    assert "What you typed is kept" in stopped.text
    assert "mail" not in stopped.url + stopped.headers.get("location", "")

    signed_in = sign_in_again(admin, stopped)
    assert "Nothing was done with it" in signed_in.text
    back = admin.submit(signed_in.page, "/create-queue")

    assert back.status == 200
    assert [queue.name for queue in admin.use.queues.list(limit=9).shown] == []
    assert back.page.one("input", name="name").attributes["value"] == "mail"
    assert back.page.one("input", name="history").attributes["value"] == "2d"
    made = admin.submit(back.page, "/create-queue")
    assert made.status == 303
    assert admin.settings("mail").history_retention_in_seconds == 172_800


@pytest.mark.parametrize(
    ("path", "field", "typed"),
    [
        ("/queues/mail/settings", "lease_seconds", "7m"),
        ("/tasks/{task}/enqueue", "queue", "sms"),
        ("/create-schedule", "cron", "1 2 * * *"),
        ("/create-key", "name", "station 7"),
    ],
)
def test_every_form_with_a_page_of_its_own_is_shown_again(
    admin: Browser, path: str, field: str, typed: str
) -> None:
    admin.queue("mail")
    [task] = admin.put("mail")
    url = f"/console{path.format(task=task)}"
    form = admin.get(url).page
    admin.clock.forward(OVER)
    stopped = admin.submit(form, path.rpartition("/")[2], **{field: typed})
    back = admin.submit(sign_in_again(admin, stopped).page, path.rpartition("/")[2])

    assert (back.status, urlsplit(back.url).path) == (200, url)
    assert back.page.one("input", name=field).attributes["value"] == typed


def test_a_form_without_a_page_is_sent_again_by_a_button(admin: Browser) -> None:
    admin.queue("mail")
    page = admin.get("/console/queues/mail").page
    admin.clock.forward(OVER)
    signed_in = sign_in_again(admin, admin.submit(page, "/mail/pause", resume_in="2h"))

    assert not admin.use.queues.get("mail").is_paused(admin.clock())
    assert signed_in.page.one("button", class_="primary").text == "Send it again"
    assert "resumes in 2h" in admin.follow(
        admin.submit(signed_in.page, "/mail/pause")).text  # fmt: skip


def test_a_form_that_is_not_ours_is_not_kept(admin: Browser, browse: Browser) -> None:
    forged = browse.another().post("/console/create-queue", {"name": "evil", "token": "x"})
    assert (forged.status, "evil" in forged.body) == (303, False)
    form = admin.get("/console/create-queue").page
    token = form.all("input", name="token")[-1].attributes["value"]
    admin.clock.forward(OVER)
    fields = {"name": "evil", "token": token}
    cross = admin.post("/console/create-queue", fields, **{"Sec-Fetch-Site": "cross-site"})
    assert (cross.status, "evil" in cross.body) == (303, False)
    long = admin.submit(form, "/create-queue", name="mail", description="x" * 600_000)
    assert (long.status, len(long.body)) == (303, 0)
