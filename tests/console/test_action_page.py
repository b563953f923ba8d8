"""All that match: a look, a confirmation of what it saw, and that done to exactly those.

Long, because each step from a look to what was done is tested on the one queue laid out here.
"""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.task import State
from tests.console.conftest import Browser, Element, Shown


def look(browser: Browser, url: str, action: str) -> Shown:
    """Begin a dry run from the page of a queue, and follow it to its end."""
    begun = browser.submit(browser.get(url).page, "/matching", action=action)
    return to_the_end(browser, browser.follow(begun))


def to_the_end(browser: Browser, shown: Shown) -> Shown:
    """Open the page again as long as it says that it would, while the service does its work."""
    for _ in range(200):
        if not any(
            meta.attributes.get("http-equiv") == "refresh" for meta in shown.page.all("meta")
        ):
            return shown
        browser.use.action_work.run()
        shown = browser.get(shown.url)
    raise AssertionError(shown.text)


def decide(browser: Browser, shown: Shown, do: str, **more: Any) -> Shown:
    """Press a button on the page of an action."""
    path = shown.url.partition("?")[0].removeprefix("/console")
    return browser.submit(shown.page, path, do=do, **more)


def kill(browser: Browser, count: int, message: str = "no answer") -> list[str]:
    return [browser.kill("mail", message=message) for _ in range(count)]


@pytest.fixture
def mail(admin: Browser) -> Browser:
    """Give an admin an empty queue called mail, and another to move to."""
    admin.queue("mail")
    admin.queue("archive")
    return admin


def test_exactly_the_filtered_set_is_restarted_after_a_look(mail: Browser) -> None:
    wanted = kill(mail, 7, "Mailbox full")
    others = kill(mail, 2, "no answer")
    confirm = look(mail, "/console/queues/mail?state=DEAD&q=error:full", "restart")

    assert "Restart 7 tasks of mail?" in confirm.page.one("h1").text
    assert len(confirm.page.one("ul", class_="samples").all("a")) == 5
    assert "+2 more" in confirm.text
    assert {mail.task(one).state for one in wanted} == {State.DEAD}
    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all")))

    assert "7 tasks restarted." in done.text
    assert {mail.task(one).state for one in wanted} == {State.ENQUEUED}
    assert {mail.task(one).state for one in others} == {State.DEAD}
    [entry] = mail.audited("restart")
    assert (entry.matched, entry.changed) == (7, 7)
    assert entry.filter is not None
    assert entry.filter["error"] == "full"


def test_a_few_first_and_then_the_rest(mail: Browser) -> None:
    kill(mail, 8)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    few = to_the_end(mail, mail.follow(decide(mail, confirm, "few")))

    assert "Done: 5 tasks restarted." in few.text
    assert mail.count("mail", State.ENQUEUED) == 5
    others = to_the_end(mail, mail.follow(decide(mail, few, "again")))
    assert "Restart 3 tasks of mail?" in others.text
    rest = to_the_end(mail, mail.follow(decide(mail, others, "all")))
    assert "3 tasks restarted." in rest.text


def begun(mail: Browser) -> Shown:
    """Begin to delete 300 tasks, of which the first part is done at once."""
    for _ in range(12):
        mail.put("mail", *["{}"] * 25)
    mail.clock.forward(1)
    return mail.follow(
        decide(mail, look(mail, "/console/queues/mail?state=READY", "delete"), "all")
    )


def test_what_is_cancelled_is_over_and_says_how_much_was_done(mail: Browser) -> None:
    over = mail.follow(decide(mail, begun(mail), "cancel"))

    assert "Cancelled after 250 tasks deleted." in over.text
    assert "Not reached 50" in over.text
    mail.use.action_work.run()
    assert mail.count("mail") == 50
    [entry] = mail.audited("delete")
    assert (entry.matched, entry.changed, entry.stopped) == (300, 250, "cancelled")
    back = mail.follow(mail.submit(over.page, "/console/undo"))
    assert "250 tasks restored." in back.text


def test_actions_are_found_from_their_queue_and_activity(mail: Browser) -> None:
    going = begun(mail)
    path = going.url.partition("?")[0]

    listed = mail.get("/console/activity?q=queue:mail")
    assert "Deleting tasks of mail" in listed.text
    assert "Delete 300 tasks of mail: running, 250 processed" in listed.text
    for shown in (listed, mail.get("/console/queues/mail")):
        links = [link.attributes.get("href", "") for link in shown.page.all("a")]
        assert path in [link.partition("?")[0] for link in links]
    assert "act_" not in mail.get("/console/activity?q=queue:archive").body


def test_a_move_asks_where_to_and_says_what_is_wrong(mail: Browser) -> None:
    ids = kill(mail, 2)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "move")

    for target, says in (("", "is needed"), ("mail", "another"), ("nowhere", "no queue nowhere")):
        refused = decide(mail, confirm, "all", to_queue=target)
        assert refused.status in (400, 404)
        assert says in refused.page.one("p", class_="wrong").text
    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all", to_queue="archive")))
    assert "2 tasks moved." in done.text
    assert {mail.task(one).queue for one in ids} == {"archive"}


def test_a_look_of_an_hour_ago_is_too_old_to_act_on(mail: Browser) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    for _ in range(2):
        mail.clock.forward(timedelta(minutes=30, seconds=1))
        mail.get("/console")  # or the session would end
    refused = decide(mail, confirm, "all")

    assert refused.status == 409
    assert "run it again" in refused.text
    assert "This selection is more than an hour old." in mail.get(confirm.url).text
    assert mail.count("mail", State.DEAD) == 6
    mail.clock.forward(timedelta(days=7).total_seconds())
    assert mail.another().sign_in().get(confirm.url).status == 404


def test_only_operators_of_the_queue_look_and_act(mail: Browser) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")

    for role in (Role.VIEWER, Role.PRODUCER, Role.WORKER):
        assert mail.as_role(role).get(confirm.url).status == 403
        assert "Restart all" not in mail.as_role(role).get("/console/queues/mail").text
    elsewhere = mail.as_role(Role.OPERATOR, "archive")
    assert elsewhere.get(confirm.url).status == 403
    only_mail = mail.as_role(Role.OPERATOR, "mail")
    mine = look(only_mail, "/console/queues/mail?state=DEAD", "move")
    assert decide(only_mail, mine, "all", to_queue="archive").status == 403
    assert mail.count("mail", State.DEAD) == 6


def token_of(page: Element) -> str:
    return page.all("input", name="token")[0].attributes["value"]
