"""The workers' pages: who is alive, late or gone, what they are at, who may quiet or stop them."""

import re

import pytest

from headrace.domain.access import Role
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.reports import ReportStatus
from tests.console.conftest import Browser, Shown


def beat(
    browse: Browser,
    name: str,
    *queues: str,
    running: tuple[str, ...] = (),
    version: str = "1.4.2",
    **more: int,
) -> None:
    started = browse.clock()
    heartbeat = WorkerHeartbeat(
        name, queues or ("mail",), started, more.get("concurrency", 8), running, version
    )
    browse.use.workers.alive(heartbeat)


def rows(shown: Shown) -> dict[str, str]:
    """The rows of the table, as text, by the names of the workers."""
    table = shown.page.one("table", class_="workers").one("tbody")
    return {row.one("th").one("a").text: row.text for row in table.all("tr")}


def test_workers_are_alive_late_or_gone_with_what_they_are_at(admin: Browser) -> None:
    admin.queue("mail")
    beat(admin, "dead.example:1")
    admin.clock.forward(230)
    beat(admin, "late.example:2")
    admin.clock.forward(80)
    ids = admin.put("mail", *["{}"] * 5)
    admin.take("mail", 5, worker="busy.example:3")
    admin.clock.forward(20)
    beat(admin, "busy.example:3", running=tuple(ids))

    shown = admin.get("/console/workers")

    found = rows(shown)
    assert "1 alive, 1 late, 1 gone" in shown.text
    assert list(found) == ["busy.example:3", "dead.example:1", "late.example:2"]
    assert " alive " in found["busy.example:3"]
    assert "busy.example 1.4.2 mail 5 of 8" in found["busy.example:3"]
    assert found["busy.example:3"].count("20 s") == 3
    assert "+2 more (as reported)" in found["busy.example:3"]
    assert " gone " in found["dead.example:1"]
    assert " late " in found["late.example:2"]


def test_a_task_leads_to_its_worker_and_a_queue_to_those_who_listen(admin: Browser) -> None:
    admin.queue("mail")
    admin.queue("other")
    [task_id] = admin.put("mail")
    admin.take("mail", worker="ada/7: née")
    beat(admin, "ada/7: née", running=(task_id,))
    beat(admin, "bob:2", "other")

    task = admin.get(f"/console/tasks/{task_id}").page
    queue = admin.get("/console/queues/mail").page
    [link, *_] = [a for a in task.all("a") if a.text == "ada/7: née"]
    [listeners] = [a for a in queue.all("a") if a.text.startswith("1 worker,")]

    assert task_id in admin.get(link.attributes["href"]).body
    assert list(rows(admin.get(listeners.attributes["href"]))) == ["ada/7: née"]


@pytest.mark.parametrize(("verb", "asked"), [("quiet", "take no new tasks"), ("stop", "stop")])
def test_a_worker_is_asked_after_a_question(admin: Browser, verb: str, asked: str) -> None:
    admin.queue("mail")
    beat(admin, "ada:1")
    page = admin.get("/console/worker?name=ada%3A1").page
    [button] = [a for a in page.all("a") if a.text == f"{verb.capitalize()}…"]

    question = admin.get(button.attributes["href"]).page
    done = admin.follow(admin.submit(question, f"/worker/{verb}"))

    assert f"ada:1 is asked to {asked}." in done.text
    assert f"{verb.capitalize()}…" not in done.text
    assert f"Asked worker ada:1 to {asked}" in admin.get("/console/activity").text
    assert "no workers" not in done.text


def test_only_operators_of_all_its_queues_may_quiet_a_worker(admin: Browser) -> None:
    for name in ("mail", "other"):
        admin.queue(name)
    beat(admin, "ada:1", "mail", "other", running=("tsk_1",))
    one = "/console/worker?name=ada%3A1"
    some = admin.as_role(Role.OPERATOR, "mail")
    viewer = admin.as_role(Role.VIEWER)

    assert "Quiet…" in admin.get(one).text
    for who in (some, viewer):
        assert "Quiet…" not in who.get(one).text
    assert "other" not in some.get(one).text
    assert some.get("/console/worker/stop?name=ada%3A1").status == 403
    assert viewer.get("/console/worker/stop?name=ada%3A1").status == 403
    assert admin.as_role(Role.PRODUCER).get(one).status == 403
    assert admin.get("/console/worker?name=nobody").status == 404
    assert admin.get("/console/worker/praise?name=ada%3A1").status == 404
    assert admin.get("/console/worker").status == 303


def test_all_workers_of_a_version_are_stopped_and_the_list_shows_how_they_drain(
    admin: Browser,
) -> None:
    admin.queue("mail")
    for _ in range(2):
        admin.put("mail")
    [done] = admin.take("mail", worker="ada:1")
    admin.clock.forward(50)
    admin.say(done, ReportStatus.SUCCEEDED)
    admin.record()
    [busy] = admin.take("mail", worker="ada:1")
    admin.clock.forward(10)
    beat(admin, "ada:1", running=(busy.id,))
    beat(admin, "bob:2")
    beat(admin, "new:3", version="1.5.0")
    every = admin.get("/console/workers")
    assert "Stop 3 workers…" not in every.text
    [link, *_] = [a for a in every.page.all("a") if a.text == "1.4.2"]
    old = admin.get(link.attributes["href"])
    [stop] = [a for a in old.page.all("a") if a.text == "Stop 2 workers…"]

    asked = admin.get(stop.attributes["href"])
    assert "ada:1, bob:2." in asked.text
    sent = admin.submit(asked.page, "/worker/stop")

    assert sent.headers["location"] == old.url
    shown = admin.follow(sent)
    assert "2 workers asked to stop." in shown.text
    assert re.search(r"1 task still running, the last about 4\d s", shown.text)
    assert "Stop 2 workers…" not in shown.text
    assert {one.heartbeat.name for one in admin.use.workers.list().shown if one.command} == {
        "ada:1", "bob:2",
    }  # fmt: skip
