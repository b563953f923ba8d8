"""All that match: a look, a confirmation of what it saw, and that done to exactly those."""

from datetime import timedelta
from typing import Any

import pytest

from console.chalicelib.views.selections import FEW
from headrace.domain.access import Role
from headrace.domain.errors import Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.task import State
from headrace.ops.operators.selections import STEP
from headrace.ops.shared.audit import AuditFilter
from tests.console.conftest import Browser, Element, Shown


def look(browser: Browser, url: str, action: str) -> Shown:
    """Begin a dry run from the page of a queue, and follow it to its end."""
    begun = browser.submit(browser.get(url).page, "/matching", action=action)
    return to_the_end(browser, browser.follow(begun))


def to_the_end(browser: Browser, shown: Shown) -> Shown:
    """Open the page again as long as it says that it would."""
    for _ in range(200):
        again = refresh_of(shown.page)
        if again is None:
            return shown
        shown = browser.get(again)
    raise AssertionError(shown.text)


def refresh_of(page: Element) -> str | None:
    found = [meta for meta in page.all("meta") if meta.attributes.get("http-equiv") == "refresh"]
    return found[0].attributes["content"].removeprefix("0; url=") if found else None


def decide(browser: Browser, shown: Shown, do: str, **more: Any) -> Shown:
    path = shown.url.partition("?")[0].rpartition("/")[2]
    return browser.submit(shown.page, f"/sets/{path}", do=do, **more)


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
    confirm = look(mail, "/console/queues/mail?state=DEAD&error=full", "restart")

    assert "Restart 7 tasks of mail?" in confirm.page.one("h1").text
    assert len(confirm.page.one("ul", class_="samples").all("a")) == 5
    assert "and 2 more" in confirm.text
    assert {mail.use.tasks.get(one).state for one in wanted} == {State.DEAD}
    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all")))

    assert "Done: 7 tasks restarted." in done.text
    assert {mail.use.tasks.get(one).state for one in wanted} == {State.ENQUEUED}
    assert {mail.use.tasks.get(one).state for one in others} == {State.DEAD}
    [entry] = mail.use.audit.list(AuditFilter(action="restart")).shown
    assert (entry.matched, entry.changed) == (7, 7)
    assert entry.filter is not None
    assert entry.filter["error"] == "full"


def test_the_buttons_say_what_they_do(mail: Browser) -> None:
    kill(mail, 7)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "delete")
    buttons = [button.text for button in confirm.page.one("main").all("button") if button.text]

    assert [text for text in buttons if "copy" not in text] == ["Delete only 5", "Delete 7 tasks"]


def test_a_few_first_and_then_the_rest(mail: Browser) -> None:
    kill(mail, 8)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    few = to_the_end(mail, mail.follow(decide(mail, confirm, "few")))

    assert "Resting: 5 of 8 tasks so far." in few.text
    assert mail.use.inspect.count("mail").by_state[State.ENQUEUED] == 5
    rest = to_the_end(mail, mail.follow(decide(mail, few, "all")))
    assert "Done: 8 tasks restarted." in rest.text


def test_what_is_sent_twice_is_done_once(mail: Browser) -> None:
    kill(mail, 12)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    decide(mail, confirm, "few")
    again = decide(mail, confirm, "few")

    assert again.status == 409
    assert mail.use.inspect.count("mail").by_state[State.ENQUEUED] == 5


def test_what_left_or_came_meanwhile_is_left_alone_and_told(mail: Browser) -> None:
    gone, *rest = kill(mail, 3)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "delete")
    mail.use.tasks.delete(gone)
    later = mail.kill("mail")
    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all")))

    assert "Done: 2 tasks deleted." in done.text
    assert "1: 1 because it is not in this queue any more" in done.text
    assert mail.use.tasks.get(later).state is State.DEAD
    assert mail.get(f"/console/tasks/{rest[0]}").status == 404


def test_a_large_set_is_looked_at_and_acted_on_in_parts(mail: Browser) -> None:
    for _ in range(64):
        mail.put("mail", *["{}"] * 25, delay_in_seconds=600)
    begun = mail.follow(
        mail.submit(mail.get("/console/queues/mail").page, "/matching", action="run")
    )

    assert "Looked at 1 500 tasks so far, 1 500 of them fit." in begun.text
    confirm = to_the_end(mail, begun)
    assert "Run 1 600 tasks of mail now?" in confirm.text
    mail.clock.forward(0.001)
    going = mail.follow(decide(mail, confirm, "all"))
    assert "Going on: 250 of 1 600 tasks so far." in going.text
    assert "only while this page is open" in going.text
    assert going.page.one("progress").attributes == {
        "class": "how-far",
        "value": "250",
        "max": "1600",
        "aria-label": "Going on: 250 of 1\u202f600 tasks so far.",
    }
    assert "Done: 1 600 tasks due now." in to_the_end(mail, going).text
    entries = mail.use.audit.list(AuditFilter(action="run")).shown
    assert sum(entry.changed or 0 for entry in entries) == 1600


def test_it_can_be_stopped_on_the_way_and_goes_on_when_asked(mail: Browser) -> None:
    for _ in range(28):
        mail.put("mail", *["{}"] * 25)
    confirm = look(mail, "/console/queues/mail", "delete")
    going = mail.follow(decide(mail, confirm, "all"))
    stopped = mail.follow(decide(mail, going, "stop"))

    assert "Resting: 250 of 700 tasks so far." in stopped.text
    assert refresh_of(stopped.page) is None
    assert "Done: 700" in to_the_end(mail, mail.follow(decide(mail, stopped, "all"))).text


def test_the_page_alone_takes_nothing_further(mail: Browser) -> None:
    for _ in range(28):
        mail.put("mail", *["{}"] * 25)
    confirm = look(mail, "/console/queues/mail", "delete")
    going = mail.follow(decide(mail, confirm, "all"))
    bare = going.url.partition("?")[0]
    with_token = refresh_of(going.page)

    assert with_token is not None
    assert "250 of 700" in mail.get(bare).text
    assert "250 of 700" in mail.get(f"{bare}?go=forged").text
    other = mail.as_role(Role.OPERATOR)
    assert "250 of 700" in other.get(with_token).text
    assert "250 of 700" in mail.get(with_token, **{"Sec-Fetch-Site": "cross-site"}).text
    assert "375 of 700" in mail.get(with_token).text


def test_no_match_is_told_and_offers_nothing(mail: Browser) -> None:
    kill(mail, 1)
    shown = mail.get("/console/queues/mail?state=DEAD").page
    none = mail.post(
        "/console/queues/mail/matching?state=DEAD&error=nothing-like-it",
        {"token": token_of(shown), "action": "restart"},
    )

    empty = to_the_end(mail, mail.follow(none))
    assert "No task fits, of 1 task looked at. There is nothing to restart." in empty.text
    assert empty.page.one("main").all("button", name="do") == []


def test_a_move_asks_where_to_and_says_what_is_wrong(mail: Browser) -> None:
    ids = kill(mail, 2)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "move")

    for target, says in (("", "is needed"), ("mail", "another"), ("nowhere", "no queue nowhere")):
        refused = decide(mail, confirm, "all", to_queue=target)
        assert refused.status in (400, 404)
        assert says in refused.page.one("p", class_="wrong").text
    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all", to_queue="archive")))
    assert "Done: 2 tasks moved." in done.text
    assert {mail.use.tasks.get(one).queue for one in ids} == {"archive"}


def test_a_filter_that_makes_no_sense_is_explained_on_the_queue_s_page(mail: Browser) -> None:
    kill(mail, 1)
    page = mail.get("/console/queues/mail").page
    refused = mail.post(
        "/console/queues/mail/matching?attempts=apples",
        {"token": token_of(page), "action": "delete"},
    )

    assert "must be a whole number" in mail.follow(refused).text


@pytest.mark.parametrize("seen", ["", "forged", "other"])
def test_a_confirmation_that_is_not_of_this_set_is_refused(mail: Browser, seen: str) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    if seen == "other":
        other = look(mail, "/console/queues/mail?state=DEAD", "delete")
        seen = other.page.one("input", name="seen").attributes["value"]
    refused = decide(mail, confirm, "all", seen=seen)

    assert refused.status == 403
    assert "this confirmation is not of this set" in refused.text.lower()
    assert mail.use.inspect.count("mail").by_state[State.DEAD] == 6


def test_a_confirmation_is_for_one_session(mail: Browser) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    seen = confirm.page.one("input", name="seen").attributes["value"]
    other = mail.as_role(Role.OPERATOR)
    theirs = other.get(confirm.url)

    assert decide(other, theirs, "all", seen=seen).status == 403
    assert decide(other, theirs, "all").status == 303


def test_a_look_of_an_hour_ago_is_too_old_to_act_on(mail: Browser) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    for _ in range(2):
        mail.clock.forward(timedelta(minutes=30, seconds=1))
        mail.get("/console")  # or the session would end
    refused = decide(mail, confirm, "all")

    assert refused.status == 409
    assert "look again" in refused.text
    assert "This look is too old to act on." in mail.get(confirm.url).text
    assert mail.use.inspect.count("mail").by_state[State.DEAD] == 6
    mail.clock.forward(timedelta(days=1).total_seconds())
    assert "no such set" in mail.another().sign_in().get(confirm.url).text


def test_the_form_needs_its_own_token(mail: Browser) -> None:
    kill(mail, 1)
    fields = {"action": "delete", "token": "forged"}

    assert mail.post("/console/queues/mail/matching", fields).status == 403
    confirm = look(mail, "/console/queues/mail?state=DEAD", "delete")
    assert decide(mail, confirm, "all", token="").status == 403
    page = mail.get("/console/queues/mail").page
    cross = {"action": "delete", "token": token_of(page)}
    refused = mail.post("/console/queues/mail/matching", cross, **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status == 403


def test_only_operators_of_the_queue_look_and_act(mail: Browser) -> None:
    kill(mail, 6)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")

    for role in (Role.VIEWER, Role.PRODUCER, Role.WORKER):
        assert mail.as_role(role).get(confirm.url).status == 403
        assert "all that match" not in mail.as_role(role).get("/console/queues/mail").text
    elsewhere = mail.as_role(Role.OPERATOR, "archive")
    assert elsewhere.get(confirm.url).status == 403
    only_mail = mail.as_role(Role.OPERATOR, "mail")
    mine = look(only_mail, "/console/queues/mail?state=DEAD", "move")
    assert decide(only_mail, mine, "all", to_queue="archive").status == 403
    assert mail.use.inspect.count("mail").by_state[State.DEAD] == 6


@pytest.mark.parametrize("do", ["look", "stop", "few", "all"])
def test_a_move_that_goes_elsewhere_is_only_for_operators_of_that_queue_too(
    mail: Browser, do: str
) -> None:
    kill(mail, 7)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "move")
    mail.follow(decide(mail, confirm, "few", to_queue="archive"))
    only_mail = mail.as_role(Role.OPERATOR, "mail")
    token = only_mail.get("/console").page.all("input", name="token")[0].attributes["value"]
    path = confirm.url.partition("?")[0]

    shown = only_mail.get(path)
    tried = only_mail.post(path, {"token": token, "do": do, "to_queue": "mail"})

    assert [shown.status, tried.status] == [403, 403]
    assert "archive" not in shown.body + tried.body
    assert len(mail.use.inspect.list("archive").tasks) == 5
    both = mail.as_role(Role.OPERATOR, "mail", "archive")
    assert "5 of 7 tasks" in both.get(path).text


def test_a_target_outside_the_key_is_refused_whether_it_is_there_or_not(mail: Browser) -> None:
    kill(mail, 1)
    only_mail = mail.as_role(Role.OPERATOR, "mail")
    mine = look(only_mail, "/console/queues/mail?state=DEAD", "move")
    statuses = [
        decide(only_mail, mine, "all", to_queue=target).status
        for target in ("archive", "nowhere", "")
    ]

    assert statuses == [403, 403, 400]


def test_a_fault_on_the_way_says_what_was_done_and_what_was_not(mail: Browser) -> None:
    kill(mail, 8)
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")
    sound, left = mail.use.bulk.store, [3]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name == "commit":
                left[0] -= 1
                if left[0] < 0:
                    message = "the table is away"
                    raise Unavailable(message)
            return getattr(sound, name)

    mail.use.bulk.store = Failing()
    shown = mail.follow(decide(mail, confirm, "all"))
    mail.use.bulk.store = sound

    assert "It stopped: the table is away. 3 were dealt with" in shown.text
    assert "Not touched 5" in shown.text
    assert refresh_of(shown.page) is None
    assert "Restart the other 5 tasks" in shown.text
    assert (
        "Done: 8 tasks restarted." in to_the_end(mail, mail.follow(decide(mail, shown, "all"))).text
    )


def test_markup_in_errors_is_text_among_the_samples(mail: Browser) -> None:
    kill(mail, 1, "<script>alert(2)</script>")
    confirm = look(mail, "/console/queues/mail?state=DEAD", "restart")

    assert "<script>alert(2)</script>" in confirm.text
    assert "<script>alert(2)" not in confirm.body


def test_a_filter_that_fits_little_says_how_far_it_looked(mail: Browser) -> None:
    for _ in range(64):
        mail.put("mail", *["{}"] * 25)
    shown = mail.get("/console/queues/mail?tag=no%3Dbody")
    second = look_on(mail, shown)
    last = look_on(mail, second)

    assert "None found yet: 750 of about 1 600 tasks looked at." in shown.text
    assert "None found yet: 1 500 of about 1 600 tasks looked at." in second.text
    assert shown.page.one("progress").attributes["max"] == "1600"
    assert "No task fits this filter." in last.text


def test_what_fits_behind_many_that_do_not_is_found_by_looking_on(mail: Browser) -> None:
    for _ in range(40):
        mail.put("mail", *["{}"] * 25)
    mail.clock.forward(1)
    meant = mail.put("mail", *["{}"] * 10, tags={"tenant": "acme"})
    mail.clock.forward(1)
    first = mail.get("/console/queues/mail?state=READY&tag=tenant%3Dacme")

    assert "No task fits" not in first.text
    assert "Nothing" not in first.text
    found = look_on(mail, first)
    assert len(found.page.one("table", class_="tasks").one("tbody").all("tr")) == len(meant)


def look_on(mail: Browser, shown: Shown) -> Shown:
    [on] = [link for link in shown.page.all("a") if link.text == "Look on"]
    return mail.get(on.attributes["href"])


def token_of(page: Element) -> str:
    return page.all("input", name="token")[0].attributes["value"]


def test_what_was_deleted_comes_back_by_a_button_on_its_page(mail: Browser) -> None:
    for _ in range(STEP + 20):  # in more than one part
        mail.put("mail", '"gone"')
    confirm = look(mail, "/console/queues/mail?state=READY", "delete")
    assert "an undo brings them back." in confirm.text

    done = to_the_end(mail, mail.follow(decide(mail, confirm, "all")))

    assert f"Done: {STEP + 20} tasks deleted." in done.text
    assert mail.use.inspect.count("mail").count == 0
    assert f"Undo: bring {STEP + 20} tasks back" in done.text
    back = mail.follow(mail.submit(done.page, "/console/undo"))
    assert f"{STEP + 20} tasks back." in back.text
    assert mail.use.inspect.count("mail").count == STEP + 20


def test_a_set_of_many_queues_comes_back_in_each(mail: Browser) -> None:
    for queue in ("mail", "archive"):
        mail.put(queue, '"gone"')
    found = mail.use.selections.look(
        BulkAction.DELETE, ["mail", "archive"], TaskFilter(), by="the admin"
    )
    shown = to_the_end(mail, mail.get(f"/console/sets/{found.name}"))

    done = to_the_end(mail, mail.follow(decide(mail, shown, "all")))
    back = mail.follow(mail.submit(done.page, "/console/undo"))

    assert "2 tasks back." in back.text
    assert [mail.use.inspect.count(queue).count for queue in ("mail", "archive")] == [1, 1]


def test_where_its_undo_is_over_a_deletion_rests_and_says_so(mail: Browser) -> None:
    for _ in range(FEW + 1):
        mail.put("mail", '"gone"')
    confirm = look(mail, "/console/queues/mail?state=READY", "delete")
    few = to_the_end(mail, mail.follow(decide(mail, confirm, "few")))
    assert f"{FEW} of {FEW + 1} tasks so far" in few.text
    [undo] = mail.use.selections.get(few.url.partition("?")[0].rpartition("/")[2]).undos.values()
    mail.use.selections.store.drop_record("undo", undo)

    rested = to_the_end(mail, mail.follow(decide(mail, few, "all")))

    assert "It stopped: the time in which it could be undone is over." in rested.text
    assert mail.use.inspect.count("mail").count == 1
