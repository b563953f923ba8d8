"""What the console says of a task, an error, an alert or a worker is true now."""

from headrace.domain.access import Role
from headrace.domain.alerts import Measured
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.queue_settings import AlertSettings
from headrace.domain.retry import RetryStrategy
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from tests.console.conftest import Browser, Shown

FAILS = WorkerError("TimeoutError", "no answer", "")


def only_row(shown: Shown) -> str:
    [row] = shown.page.one("table", class_="tasks").one("tbody").all("tr")
    return row.text


def test_a_running_task_says_for_how_long_it_has_been_running(admin: Browser) -> None:
    admin.queue("mail", keepalive_timeout_in_seconds=30)
    admin.put("mail")
    [task] = admin.take("mail")
    for _ in range(3):
        admin.clock.forward(20)
        admin.say(task, ReportStatus.INFLIGHT, progress="0.5")

    row = only_row(admin.get("/console/queues/mail"))

    assert "running for 1 min" in row
    assert "50 %" in row
    assert "ago" not in row
    assert "Running for" in admin.get("/console/queues/mail?state=INFLIGHT").text


def failed_twice(browser: Browser) -> list[str]:
    """Have two tasks fail alike, the second one later, and be tried again."""
    browser.queue("mail", retry_strategy=RetryStrategy(max_retries=3, base_seconds=0))
    ids = []
    for _ in range(2):
        ids += browser.put("mail")
        browser.clock.forward(1)
        [task] = [one for one in browser.take("mail", 5) if one.id == ids[-1]]
        browser.say(task, ReportStatus.FAILED, error=FAILS, delay_in_seconds=60)
    browser.record()
    return ids


def samples(shown: Shown) -> list[str]:
    group = shown.page.one("table", class_="blocks")
    links = [link.attributes["href"] for link in group.all("a")]
    return [link.rpartition("/")[2] for link in links if "/tasks/" in link]


def test_the_sample_of_an_error_is_a_task_that_has_it_now(admin: Browser) -> None:
    first, second = failed_twice(admin)
    assert samples(admin.get("/console/errors")) == [second]

    admin.clock.forward(61)
    for task in admin.take("mail", 5):
        if task.id == second:
            admin.say(task, ReportStatus.SUCCEEDED)
    admin.record()

    assert samples(admin.get("/console/errors")) == [first]
    admin.use.tasks.delete(first)
    admin.record()
    assert "No errors." in admin.get("/console/errors").text


def test_an_alert_whose_limit_is_not_reached_now_says_so_and_is_no_trouble(
    admin: Browser,
) -> None:
    alerts = AlertSettings("ops", 300)
    admin.queue("ops")
    queue = admin.queue("mail", alerts=alerts)
    admin.use.alerts.settle(admin.use.queues.get(queue), alerts, Measured(400.0))
    admin.clock.forward(86_400)
    admin.sign_in()

    here = admin.get("/console/queues/mail").text
    home = admin.get("/console")

    assert "oldest ready for 5m, since 1 d ago ; now below the limit" in here
    assert "now below the limit" in home.text
    [troubles] = home.page.all("section")  # that the task of the alert waits in ops
    assert "mail" not in troubles.text
    admin.put("mail")
    admin.clock.forward(301)
    assert "now below the limit" not in admin.get("/console/queues/mail").text


def test_a_task_that_was_deleted_is_found_in_activity_by_its_id(filled: Browser) -> None:
    (task_id,) = filled.put("mail")
    operator = filled.as_role(Role.OPERATOR)
    operator.submit(operator.get(f"/console/tasks/{task_id}/delete").page, "/delete")

    searched = operator.get(f"/console/search?q={task_id}")
    [link] = [one for one in searched.page.all("a") if one.text == "Look for it in Activity"]
    found = operator.get(link.attributes["href"])

    [row] = found.page.one("tbody").all("tr")
    assert "the operator Deleted 1 task of mail" in row.text
    viewer = filled.as_role(Role.VIEWER)
    assert "in Activity" not in viewer.get(f"/console/search?q={task_id}").text


def test_the_page_of_a_deleted_task_says_by_whom_and_why_and_restores_it(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)
    (task_id,) = filled.put("mail")
    url = f"/console/tasks/{task_id}"
    filled.use.tasks.delete(task_id, undo_in_seconds=3_600, reason="sent twice")
    filled.clock.forward(14 * 60)

    shown = operator.get(url)
    assert shown.status == 410
    assert "Deleted 14 min ago by service: sent twice." in shown.text
    viewed = filled.as_role(Role.VIEWER).get(url)
    assert "Deleted 14 min ago." in viewed.text
    assert "sent twice" not in viewed.text
    assert "Undo" not in viewed.text
    restored = operator.submit(shown.page, "/console/undo")
    assert restored.headers["location"] == url
    assert operator.get(url).status == 200


def test_a_task_deleted_by_a_filter_is_known_by_its_undo_and_later_by_the_audit(
    filled: Browser,
) -> None:
    ids = [filled.kill("empty") for _ in range(2)]
    where = TaskFilter(states=("DEAD",))
    filled.use.bulk.by_filter(
        "empty", BulkAction.DELETE, where, undo_in_seconds=60, reason="too old"
    )
    admin = filled.as_role(Role.ADMIN)

    shown = admin.get(f"/console/tasks/{ids[0]}").text
    assert "by service: too old. Undo restores all tasks deleted with it." in shown
    found = admin.follow(admin.get(f"/console/activity?q=id:{ids[0]}"))
    assert "Deleted 2 dead tasks of empty: too old" in found.text

    filled.clock.forward(61)
    assert admin.get(f"/console/tasks/{ids[0]}").status == 404
    [other] = filled.put("mail")
    filled.use.tasks.delete(other, reason="spam")
    gone = admin.get(f"/console/tasks/{other}")
    assert "by service: spam. It can no longer be restored." in gone.text
    assert filled.as_role(Role.VIEWER).get(f"/console/tasks/{other}").status == 404
