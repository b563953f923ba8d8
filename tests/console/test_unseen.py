"""Nothing hides in a text: control and bidi characters are printed by their names, everywhere."""

import re

from headrace.ops.delivery.reports import ReportStatus, WorkerError
from tests.console.conftest import Browser, typed_in

TURNED = "invoice\u202egpj.exe\x1b[2J\u200b"
NAMED = "invoice⟨U+202E⟩gpj.exe⟨U+001B⟩[2J⟨U+200B⟩"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def stocked(admin: Browser) -> str:
    """Make a dead task with such texts wherever its makers may put one; return its id."""
    admin.queue("mail", description=TURNED)
    [task_id] = admin.put("mail", f'{{"{TURNED.replace(chr(27), "")}": 1}}', tags={TURNED: TURNED})
    [task] = admin.take("mail", worker=TURNED)
    error = WorkerError(TURNED, TURNED, f"Traceback:\n{TURNED}")
    admin.say(task, ReportStatus.FAILED, error=error, retryable=False)
    return task_id


def test_no_page_prints_any_of_them(admin: Browser) -> None:
    task_id = stocked(admin)
    pages = ("", "/queues/mail", "/queues/mail?state=dead", f"/tasks/{task_id}", "/errors")

    for path in pages:
        shown = admin.get(f"/console{path}")
        printed = re.sub(r'(value|data-copy)="[^"]*"', "", shown.body)
        assert shown.status == 200
        assert not RAW.search(printed), path

    assert NAMED in admin.get(f"/console/tasks/{task_id}").text
    assert NAMED in admin.get("/console/queues/mail?state=dead").text
    assert NAMED in admin.get("/console/errors").text


def test_what_is_copied_or_sent_back_is_as_it_was(admin: Browser) -> None:
    task_id = stocked(admin)
    payload = admin.task(task_id).payload or ""

    [copy] = admin.get(f"/console/tasks/{task_id}").page.one(
        "section", class_="json"
    ).all("button", class_="copy")  # fmt: skip
    assert copy.attributes["data-copy"] == payload
    form = admin.get(f"/console/tasks/{task_id}/enqueue").page
    assert "\u202e" in typed_in(form.one("textarea", name="payload"))
    made = admin.submit(admin.submit(form, "/enqueue").page, "/enqueue")
    new = admin.task(made.headers["location"].rpartition("/")[2])
    assert (new.payload, new.tags) == (payload, {TURNED: TURNED})
