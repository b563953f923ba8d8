"""The search boxes: one language on lists and over all queues, ids by how they begin."""

import pytest

from headrace.domain.access import Role
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.worker import WorkerHeartbeat
from tests.console.conftest import Browser, Shown, query_of


def ids_of(shown: Shown) -> set[str]:
    tables = [
        one for one in shown.page.all("table") if "tasks" in one.attributes.get("class", "").split()
    ]
    links = [link.attributes["href"] for table in tables for link in table.all("a")]
    paths = {link.partition("?")[0] for link in links}
    return {path.rpartition("/")[2] for path in paths if "/tasks/" in path}


@pytest.fixture
def mail(admin: Browser) -> Browser:
    admin.queue("mail")
    admin.queue("sms")
    return admin


def test_the_box_shows_the_whole_query_with_the_state_of_the_tab(mail: Browser) -> None:
    mail.put("mail", tags={"tenant": "acme, Ltd"})
    typed = 'state:ready tag:tenant="acme, Ltd" attempts:0'

    rest = typed.removeprefix("state:ready ")
    for asked in (f"q={typed}", f"state=READY&q={rest}"):
        shown = mail.get(f"/console/queues/mail?{asked.replace(' ', '+')}")
        assert shown.page.one("input", id="query").attributes["value"] == typed
        assert len(ids_of(shown)) == 1


def test_each_term_is_taken_out_by_its_link(mail: Browser) -> None:
    mail.put("mail", tags={"a": "1"})
    shown = mail.get("/console/queues/mail?state=READY&q=tag:a%3D1+attempts:0")

    chips = shown.page.one("p", class_="terms").all("a")

    rest = [query_of(chip.attributes["href"]) for chip in chips]
    assert rest == [
        {"state": "READY", "q": "attempts:0"},
        {"state": "READY", "q": "tag:a=1"},
    ]


def test_a_wrong_query_says_what_and_where_and_lists_nothing(mail: Browser) -> None:
    mail.put("mail")
    shown = mail.get("/console/queues/mail?q=tag:a%3D1+staet:dead")

    assert shown.status == 400
    assert "at character 9: staet is no key" in shown.text
    assert shown.page.one("input", id="query").attributes["value"] == "tag:a=1 staet:dead"
    assert ids_of(shown) == set()


def test_who_may_not_see_payloads_may_not_ask_for_them(mail: Browser) -> None:
    mail.put("mail", '{"order": 77}')
    viewer = mail.as_role(Role.VIEWER)

    for path in ("/console/queues/mail", "/console/search"):
        shown = viewer.get(f"{path}?q=payload.order:77")
        assert shown.status == 400
        assert "payloads are not shown to this key" in shown.text
        assert ids_of(shown) == set()


@pytest.mark.parametrize("length", [16, 29])
def test_how_an_id_begins_finds_it_in_its_queue_and_in_all(mail: Browser, length: int) -> None:
    mail.put("mail")
    mail.clock.forward(300)
    [meant] = mail.put("sms")
    mail.clock.forward(300)
    mail.put("sms")
    prefix = meant[:length]

    shown = mail.get(f"/console/search?q={prefix}")
    assert ids_of(shown) == {meant}, shown.headers.get("location")
    assert ids_of(mail.get(f"/console/queues/sms?q={prefix}")) == {meant}
    assert ids_of(mail.get(f"/console/queues/mail?q={prefix}")) == set()


def test_ids_of_other_keys_queues_are_not_found(mail: Browser) -> None:
    [secret] = mail.put("sms")
    only_mail = mail.as_role(Role.VIEWER, "mail")

    assert ids_of(only_mail.get(f"/console/search?q={secret[:20]}")) == set()


def test_a_search_over_all_queues_continues_step_by_step(mail: Browser) -> None:
    put = {
        queue: mail.put(queue, *["{}"] * 40, tags={"tenant": queue}) for queue in ("mail", "sms")
    }
    shown = mail.get("/console/search?q=-tag:tenant%3Dnobody")
    found, steps = ids_of(shown), 1
    while links := shown.page.all("a", rel="next"):
        assert "queues searched" in shown.page.one("p", role="status").text
        shown, steps = mail.get(links[0].attributes["href"]), steps + 1
        assert found.isdisjoint(ids_of(shown))
        found |= ids_of(shown)

    assert found == {*put["mail"], *put["sms"]}
    assert steps == 2
    assert "80 tasks found in all queues." in shown.text


def test_the_last_step_of_a_search_counts_what_earlier_steps_found(mail: Browser) -> None:
    mail.put("mail", *["{}"] * 50, tags={"tenant": "acme"})
    mail.put("sms")
    shown = mail.get("/console/search?q=tag:tenant%3Dacme")
    while links := shown.page.all("a", rel="next"):
        shown = mail.get(links[0].attributes["href"])

    assert not ids_of(shown)
    assert "50 tasks found in all queues." in shown.text


@pytest.mark.parametrize(
    ("wanted", "to"),
    [
        ("mail", "/console/queues/mail"),
        ("ada:1", "/console/worker?name=ada%3A1"),
        ("wfl_1", "/console/workflows/wfl_1"),
        ("order-1", "/console/tasks/order-1"),
    ],
)
def test_an_id_or_a_name_leads_to_its_page(mail: Browser, wanted: str, to: str) -> None:
    mail.use.task_batches.create({}, batch_id="wfl_1", total=2)
    mail.use.workers.alive(WorkerHeartbeat("ada:1", ("mail",), mail.clock()))
    mail.use.tasks.enqueue("mail", [TaskSpec("{}", id="order-1")])

    assert mail.get(f"/console/search?q={wanted}").headers["location"] == to


def test_an_action_is_found_by_its_id(mail: Browser) -> None:
    run = mail.use.actions.begin_all(BulkAction.DELETE, ["mail"], TaskFilter())

    shown = mail.get(f"/console/search?q={run.id}")
    assert shown.headers["location"] == f"/console/activity/{run.id}"


def test_a_word_finds_names_and_offers_errors_and_payloads(mail: Browser) -> None:
    mail.use.schedules.put("mail", "nightly-mail", ScheduleSettings(cron="0 3 * * *", payload="1"))
    mail.key(Role.WORKER, "mail")
    mail.kill("sms", '{"to": "mail@example.org"}', message="no mail server")
    mail.record()
    shown = mail.get("/console/search?q=mai")

    things = [row.text for row in shown.page.one("tbody").all("tr")]
    assert "Queue mail" in things
    assert "Schedule nightly-mail" in things
    assert any(one.startswith("Key ") for one in things)
    assert "Errors Errors with mai 1 message" in things
    links = {link.text: link.attributes["href"] for link in shown.page.all("a")}
    assert len(ids_of(mail.get(links["Tasks with mai in the error"]))) == 1
    assert len(ids_of(mail.get(links["Tasks with mai in the payload"]))) == 1
    viewer = mail.as_role(Role.VIEWER).get("/console/search?q=mai")
    assert "in the payload" not in viewer.text
    assert "Key " not in viewer.page.one("tbody").text
