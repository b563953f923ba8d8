"""The filter, the order and the page of a list survive what is done from it."""

from urllib.parse import quote

import pytest

from tests.console.conftest import Browser, Element, Shown, form_to

LIST = "/console/queues/mail?state=DEAD&q=error%3Afull&order=asc&limit=25"


@pytest.fixture
def mail(admin: Browser) -> Browser:
    """Give an admin a queue with 60 dead tasks of one error."""
    admin.queue("mail")
    for _ in range(60):
        admin.kill("mail", message="disk full")
    admin.record()
    return admin


def second_page(browser: Browser) -> Shown:
    """Return the second page of the filtered list."""
    first = browser.get(LIST)
    [link] = first.page.all("a", rel="next")
    shown = browser.get(link.attributes["href"])
    assert "cursor=" in shown.url
    assert shown.page.all("input", name="id")
    return shown


def link_of(page: Element, text: str) -> str:
    """Return the address of the only link with *text*."""
    found = {link.attributes["href"] for link in page.all("a") if link.text == text}
    assert len(found) == 1, (text, found)
    return found.pop()


def task_link(shown: Shown) -> str:
    """Return the address of the first task of a list."""
    links = [link.attributes["href"] for link in shown.page.all("a")]
    return next(url for url in links if url.startswith("/console/tasks/"))


def test_a_list_is_kept_by_an_action_on_ticked_tasks(mail: Browser) -> None:
    here = second_page(mail)
    ticked = here.page.all("input", name="id")[0].attributes["value"]

    asked = mail.follow(mail.submit(here.page, "/mail/selected", action="restart", id=ticked))
    done = mail.submit(asked.page, asked.url.partition("?")[0], do="all")

    assert link_of(asked.page, "Cancel") == here.url
    assert done.headers["location"] == here.url
    nothing = mail.submit(here.page, "/mail/selected", action="restart")
    assert nothing.headers["location"] == here.url


def test_a_list_is_kept_by_an_action_on_all_that_match_and_by_its_undo(mail: Browser) -> None:
    here = second_page(mail)

    seen = mail.follow(mail.submit(here.page, "/mail/matching", action="delete"))
    done = mail.follow(mail.submit(seen.page, seen.url.partition("?")[0], do="few"))
    undone = mail.submit(done.page, "/console/undo")

    assert link_of(done.page, "Back to the list") == here.url
    assert undone.headers["location"] == done.url
    assert link_of(mail.follow(undone).page, "Back to the list") == here.url


def test_a_list_is_kept_by_the_deletion_of_one_task_and_its_undo(mail: Browser) -> None:
    here = second_page(mail)
    task = mail.get(task_link(here))

    asked = mail.get(link_of(task.page, "Delete…"))
    deleted = mail.submit(asked.page, "/delete")
    undone = mail.submit(mail.follow(deleted).page, "/console/undo")

    assert link_of(asked.page, "Cancel") == task.url
    assert deleted.headers["location"] == here.url
    assert undone.headers["location"] == here.url
    assert "1 task restored." in mail.follow(undone).text


@pytest.mark.parametrize("action", ["pause", "recount", "reindex"])
def test_a_list_is_kept_by_what_is_done_to_its_queue(admin: Browser, action: str) -> None:
    admin.queue("mail", indexed_fields=("tag:tenant",))
    shown = "state=READY&q=tag%3Aa%3D1" if action == "pause" else "tab=repair"
    url = f"/console/queues/mail?{shown}"
    here = admin.get(url)

    done = admin.submit(here.page, f"/mail/{action}")
    assert done.headers["location"] == url
    if action == "pause":
        assert admin.submit(admin.get(url).page, "/mail/resume").headers["location"] == url


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/console",
        "//evil.example",
        "/console\\evil",
        "/other",
        "/console/%2e%2E/other",
    ],
)
def test_nothing_leads_back_to_another_site(mail: Browser, elsewhere: str) -> None:
    task = task_link(mail.get(LIST)).partition("?")[0]

    asked = mail.get(f"{task}/delete?back={quote(elsewhere, safe='')}")
    deleted = mail.submit(asked.page, "/delete", back=elsewhere)

    assert elsewhere not in {link.attributes["href"] for link in asked.page.all("a")}
    assert form_to(asked.page, "/delete").all("input", name="back") == []
    assert deleted.headers["location"] == "/console/queues/mail"
