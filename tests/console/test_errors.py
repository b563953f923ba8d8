"""Errors of all queues by kind, over queues, and what is done to a group of them."""

from urllib.parse import urlencode

import pytest

from headrace.domain.access import Role
from headrace.domain.task import State
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from tests.console.conftest import Browser, Element, Shown
from tests.console.test_action_page import decide, to_the_end, token_of
from tests.streamed import SHARD


@pytest.fixture
def mortuary(admin: Browser) -> Browser:
    """Give an admin two queues with dead of two faults."""
    admin.queue("mail")
    admin.queue("sms")
    for queue, seconds in (("mail", 30), ("sms", 7), ("mail", 12)):
        admin.kill(queue, message=f"no answer after {seconds} s")
        admin.clock.forward(60)
    admin.kill("mail", message="mailbox 'ada' is full")
    record(admin)
    return admin


def record(browser: Browser) -> None:
    """Let the recorder come to all that has happened."""
    assert browser.stream is not None
    browser.use.recording.record(SHARD, browser.stream.taken())


def groups_of(shown: Shown) -> list[Element]:
    return [row for row in shown.page.all("tr") if row.all("th", scope="row")]


def ask(browser: Browser, group: Element, action: str) -> Shown:
    fields: dict[str, list[str]] = {"do": [action]}
    for each in group.all("input", type="hidden"):
        fields.setdefault(each.attributes["name"], []).append(each.attributes["value"])
    return browser.post("/console/errors", fields)


def test_messages_of_one_type_and_function_stand_together(mortuary: Browser) -> None:
    whole, alike, other = groups_of(mortuary.get("/console/errors"))

    assert whole.text.startswith("TimeoutError 2 messages Restart… Delete… 4 0 3 min ago now")
    assert "no answer after … s Restart… Delete… 3 0 3 min ago 1 min ago" in alike.text
    assert "mail sms" in alike.text
    assert "mailbox 'ada' is full Restart… Delete… 1 0 now now" in other.text


def test_functions_are_apart_and_a_head_sorts(mortuary: Browser) -> None:
    mortuary.kill("sms", '{"task": "sms.send"}', message="no answer at 10.0.0.7:25")
    record(mortuary)
    shown = mortuary.get("/console/errors")
    [head] = [link for link in shown.page.all("a", class_="sort") if "Error" in link.text]

    assert (
        "TimeoutError in sms.send no answer at 10.0.0.7:25 Restart… Delete… 1"
        in groups_of(shown)[-1].text
    )
    turned = mortuary.get(head.attributes["href"])
    assert turned.page.one("th", **{"aria-sort": "ascending"}).text.startswith("Error")


def test_an_error_that_began_with_a_version_says_so(mortuary: Browser) -> None:
    for name, version in (("old:1", "1.0"), ("new:1", "2.1")):
        beat = WorkerHeartbeat(name, ("mail",), mortuary.clock(), version=version)
        mortuary.use.workers.alive(beat)
        mortuary.clock.forward(60)
    mortuary.put("mail")
    [task] = mortuary.take("mail", worker="new:1")
    mortuary.say(
        task,
        ReportStatus.FAILED,
        error=WorkerError("Broken", "no such template", ""),
        retryable=False,
    )
    record(mortuary)
    shown = mortuary.get("/console/errors")

    [new] = [row for row in groups_of(shown) if "new since 2.1" in row.text]
    assert "no such template" in new.text
    assert len(groups_of(mortuary.get("/console/errors?q=version:2.1"))) == 1
    assert len(groups_of(mortuary.get("/console/errors?q=-version:2.1"))) == 3


def test_a_sum_of_messages_is_restarted_together(mortuary: Browser) -> None:
    whole = groups_of(mortuary.get("/console/errors"))[0]
    confirm = to_the_end(mortuary, mortuary.follow(ask(mortuary, whole, "restart")))

    assert "Restart 4 tasks of 2 queues?" in confirm.text


@pytest.mark.parametrize(("action", "left"), [("restart", State.ENQUEUED), ("delete", None)])
def test_a_group_is_looked_at_first_and_then_dealt_with_in_all_its_queues(
    mortuary: Browser, action: str, left: State | None
) -> None:
    group = groups_of(mortuary.get("/console/errors"))[1]
    confirm = to_the_end(mortuary, mortuary.follow(ask(mortuary, group, action)))

    assert "3 tasks of 2 queues?" in confirm.text
    assert mortuary.count("mail", State.DEAD) == 3
    done = to_the_end(mortuary, mortuary.follow(decide(mortuary, confirm, "all")))
    assert "Done: 3 tasks" in done.text
    counts = [mortuary.use.inspect.count(queue).by_state for queue in ("mail", "sms")]
    assert [count[State.DEAD] for count in counts] == [1, 0]
    if left is not None:
        assert [count[left] for count in counts] == [2, 1]


def test_a_viewer_sees_the_groups_and_no_action(mortuary: Browser) -> None:
    shown = mortuary.as_role(Role.VIEWER).get("/console/errors")

    assert len(groups_of(shown)) == 3
    assert "Restart" not in shown.text
    for role in (Role.PRODUCER, Role.WORKER):
        assert mortuary.as_role(role).get("/console/errors").status == 403


def test_a_key_for_some_queues_sees_and_touches_no_others(mortuary: Browser) -> None:
    only_sms = mortuary.as_role(Role.OPERATOR, "sms")
    shown = only_sms.get("/console/errors")
    form = groups_of(shown)[0]
    named = form.one("input", name="fingerprint").attributes["value"]
    fields = {"token": token_of(shown.page), "do": "delete", "fingerprint": named}

    assert "mail" not in shown.page.one("main").text
    assert only_sms.post("/console/errors", {**fields, "queue": ["sms", "mail"]}).status == 403
    assert only_sms.post("/console/errors", {**fields, "queue": "sms"}).status == 303


@pytest.mark.parametrize("wrong", [{"fingerprint": "x"}, {"do": "dance"}, {"queue": []}])
def test_what_the_page_has_not_shown_is_refused(
    mortuary: Browser, wrong: dict[str, object]
) -> None:
    shown = mortuary.get("/console/errors")
    fields = {"token": token_of(shown.page), "do": "delete", "queue": "mail",
              "fingerprint": "0123456789abcdef"}  # fmt: skip

    assert mortuary.post("/console/errors", {**fields, **wrong}).status in (400, 404)
    assert mortuary.post("/console/errors", {**fields, "token": ""}).status == 403


def test_markup_in_errors_is_text(mortuary: Browser) -> None:
    mortuary.kill("sms", message="<b onclick=x>no</b>")
    record(mortuary)

    assert "<b onclick" not in mortuary.get("/console/errors").body


@pytest.mark.parametrize(
    ("query", "rows", "says"),
    [
        ("queue:sms", 1, "1 message: 1 dead task,"),
        ("queue:mail error:answer", 1, "1 message: 2 dead tasks,"),
        ("answer OR mailbox -queue:sms", 1, "1 message: 1 dead task,"),
        ("tag:tenant=acme", 0, "tag is no key: use one of queue, error, task, version"),
    ],
)
def test_errors_are_searched_in_the_language_of_the_lists(
    mortuary: Browser, query: str, rows: int, says: str
) -> None:
    shown = mortuary.get(f"/console/errors?{urlencode({'q': query})}")

    assert len(groups_of(shown)) == rows
    assert says in shown.page.text
    assert shown.page.one("input", id="query").attributes["value"] == query
