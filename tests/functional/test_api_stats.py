"""How a queue is doing, over HTTP: the recorder is given the stream when a test says so.

Long, because each figure, with what it says while the recorder is behind, is a test of its own.
"""

from typing import Any, cast

import pytest

from headrace.domain.task import Status
from headrace.history.metrics import POINTS
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.documented import check_documented
from tests.functional.conftest import KEY, Answer, Service
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

FIXED = {"kind": "fixed", "base_seconds": 600, "jitter": 0, "max_retries": 1}
EVENTS = ("enqueued", "started", "succeeded", "failed", "dead", "cancelled")


class Counted(Service):
    """A service with a recorder, which counts when told."""

    stream: Streamed

    def record(self) -> None:
        self.use.recording.record(SHARD, self.stream.taken())

    def stats(self, path: str, **query: str) -> Any:
        answer = self("GET", f"{path}/stats", query=query)
        assert answer.status == 200, answer.body
        check_documented("Stats", answer.json)
        return answer.json

    def metrics(self, path: str, **query: str) -> Any:
        answer = self("GET", f"{path}/metrics", query=query)
        assert answer.status == 200, answer.body
        check_documented("Metrics", answer.json)
        return answer.json

    def totals(self, path: str, **query: str) -> list[int]:
        points = self.metrics(path, **query)["points"]
        return [sum(point[name] for point in points) for name in EVENTS]


@pytest.fixture
def counted() -> Counted:
    clock = ManualClock()
    stream = Streamed(MemoryStore(), clock)
    settings = Settings(admin_key=KEY, poll_after_seconds=0.02, settings_ttl_seconds=1)
    service = Counted(clock, build(settings, stream.store, now=clock))
    service.stream = stream
    return service


def worked(counted: Counted) -> str:
    """Let a queue have a task in each state, two of them waiting."""
    path = counted.queue("mail", retry_strategy=FIXED)
    counted.put(path, *range(4))
    counted.put(path, 4, delay_in_seconds=3600)
    counted.clock.forward(1)
    tasks = counted.take(path, 3)
    counted.clock.forward(2)
    counted.say(tasks[0], "SUCCEEDED")
    counted.say(tasks[1], "FAILED", retryable=False)
    return path


def test_a_queue_at_a_glance(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(3)

    stats = counted.stats(path)

    assert stats["counts"] == {
        "scheduled": 1,
        "ready": 1,
        "inflight": 1,
        "succeeded": 1,
        "dead": 1,
        "cancelled": 0,
    }
    assert stats["age_of_oldest_ready_seconds"] == pytest.approx(6.001, abs=1e-4)
    assert stats["age_of_oldest_inflight_seconds"] == 5.0
    assert stats["as_of"] == "2026-11-21T08:00:03.001000Z"
    assert stats["staleness_seconds"] == 3.0


def cancelled(counted: Counted, path: str, *numbers: int) -> None:
    """Enqueue and cancel tasks of these numbers."""
    ids = [f"c{number}" for number in numbers]
    for task_id in ids:
        counted("POST", f"{path}/tasks", {"tasks": [{"payload": 1, "id": task_id}]})
        assert counted("POST", f"/v1/tasks/{task_id}/cancel", {}).status == 200


def test_of_the_dead_those_that_were_cancelled_are_told(counted: Counted) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2, 3)
    counted.record()

    shown = [counted.stats(path, **query)["counts"] for query in ({}, {"exact": "true"})]

    assert [(counts["dead"], counts["cancelled"]) for counts in shown] == [(4, 3)] * 2
    glance = counted.use.stats.overview([counted.use.queues.get("mail")]).queues["mail"]
    assert (glance.counts[Status.DEAD], glance.cancelled) == (4, 3)


def test_exact_counts_know_what_was_cancelled_without_the_recorder(counted: Counted) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2, 3)

    first = counted.stats(path, exact="true")
    counted("POST", f"{path}/tasks/restart", {"ids": ["c1"]})
    counted("DELETE", "/v1/tasks/c2")
    second = counted.stats(path, exact="true")
    counted.use.inspect.patience = -1
    third = counted.stats(path, exact="true")

    assert (first["counts"]["dead"], first["counts"]["cancelled"]) == (4, 3)
    assert (second["counts"]["dead"], second["counts"]["cancelled"]) == (2, 1)
    assert second["staleness_seconds"] == 0
    assert third["counts"]["cancelled"] == 0  # it is the recorder's, which has seen none


def test_what_was_cancelled_and_is_restarted_or_removed_is_told_no_more(counted: Counted) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2, 3)
    counted("POST", f"{path}/tasks/restart", {"ids": ["c1"]})
    counted("DELETE", "/v1/tasks/c2")
    counted.record()

    counts = counted.stats(path)["counts"]

    assert (counts["dead"], counts["cancelled"]) == (2, 1)


def test_no_failure_is_taken_for_a_cancel_while_the_recorder_is_behind(counted: Counted) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2, 3)
    counted.record()
    counted("POST", f"{path}/tasks/restart", {"ids": ["c1", "c2", "c3"]})

    counts = counted.stats(path)["counts"]

    assert (counts["dead"], counts["cancelled"]) == (1, 0)


def test_a_queue_shows_the_same_of_itself(counted: Counted) -> None:
    path = worked(counted)
    counted.record()

    shown = counted("GET", path).json

    check_documented("QueueInFull", shown)
    assert shown["stats"] == counted.stats(path)
    assert counted("PUT", path, shown).status == 200


def test_an_empty_queue_has_no_ages(counted: Counted) -> None:
    stats = counted.stats(counted.queue("mail"))

    assert set(stats["counts"].values()) == {0}
    assert stats["age_of_oldest_ready_seconds"] is None
    assert stats["age_of_oldest_inflight_seconds"] is None
    assert set(stats["rates"].values()) == {0.0}


def test_rates_are_those_since_the_last_full_minute_began(counted: Counted) -> None:
    path = counted.queue("mail")
    counted.put(path, *range(25))
    counted.clock.forward(70)
    counted.put(path, *range(20))
    counted.clock.forward(30)
    for task in counted.take(path, 10):
        counted.say(task, "SUCCEEDED")
    counted.record()

    rates = counted.stats(path)["rates"]

    # 100.001 seconds after the full hour, so the minute that is over began 100.001 seconds ago.
    assert rates == {
        "enqueued_per_second": pytest.approx(0.45, abs=1e-3),
        "dequeued_per_second": pytest.approx(0.1, abs=1e-3),
        "succeeded_per_second": pytest.approx(0.1, abs=1e-3),
        "failed_per_second": 0.0,
    }


def test_a_queue_that_rests_is_not_stale_while_the_recorder_lives(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(86_000)

    stats = counted.stats(path)

    assert stats["staleness_seconds"] == 0.0
    assert stats["as_of"] == "2026-11-22T07:53:23.001000Z"


@pytest.mark.parametrize("change", ["enqueue", "start", "succeed", "die"])
def test_figures_are_stale_when_the_recorder_has_missed_a_change(
    counted: Counted, change: str
) -> None:
    path = counted.queue("mail", keepalive_timeout_in_seconds=60)
    counted.put(path, *range(3))
    held = counted.take(path, 2)
    counted.record()
    counted.clock.forward(20)

    if change == "enqueue":
        counted.put(path, 1)
    elif change == "start":
        counted.take(path)
    elif change == "succeed":
        counted.say(held[0], "SUCCEEDED")
    else:
        counted.say(held[0], "FAILED", retryable=False)
    counted.clock.forward(10)

    assert counted.stats(path)["staleness_seconds"] > 29
    counted.record()
    assert counted.stats(path)["staleness_seconds"] < 11


def test_without_any_recorder_only_an_untouched_queue_is_known(counted: Counted) -> None:
    path = counted.queue("mail")
    counted.clock.forward(100)
    untouched = counted.stats(path)["staleness_seconds"]
    counted.put(path, 1)
    counted.clock.forward(100)

    assert untouched == 0
    assert counted.stats(path)["staleness_seconds"] == 200


def test_small_numbers_are_right_before_the_recorder_has_heard_of_them(counted: Counted) -> None:
    path = worked(counted)

    counts = counted.stats(path)["counts"]
    assert counts.pop("cancelled") == 0
    assert set(counts.values()) == {1}


def test_exact_counts_need_no_recorder(counted: Counted) -> None:
    path = counted.queue("mail")
    for _ in range(60):
        counted.put(path, *range(10))
        counted.put(path, *range(10), delay_in_seconds=500)
    counted.clock.forward(1)

    stats = counted.stats(path, exact="true")

    assert stats["counts"]["ready"] == stats["counts"]["scheduled"] == 600
    assert stats["staleness_seconds"] == 0


def test_where_exact_counts_would_take_too_long_the_figures_say_how_old_they_are(
    counted: Counted,
) -> None:
    path = counted.queue("mail", shards=2)
    counted.put(path, *range(20))
    counted.record()
    counted.clock.forward(20)
    counted.put(path, 20)
    counted.use.inspect.patience = -1

    stats = counted.stats(path, exact="true")

    assert stats["counts"]["ready"] == 21  # few enough to be looked up
    assert stats["staleness_seconds"] == 20


@pytest.mark.parametrize(("ready", "later"), [(600, 20), (20, 600), (600, 0), (0, 600)])
def test_large_numbers_are_divided_by_the_side_that_is_small(
    counted: Counted, ready: int, later: int
) -> None:
    path = counted.queue("mail")
    for _ in range(0, ready, 20):
        counted.put(path, *range(20))
    for _ in range(0, later, 20):
        counted.put(path, *range(20), delay_in_seconds=500)
    counted.record()
    counted.clock.forward(1)

    counts = counted.stats(path)["counts"]

    assert (counts["ready"], counts["scheduled"]) == (ready, later)


@pytest.mark.parametrize("shards", [1, 3])
def test_two_large_numbers_are_an_estimate_with_the_right_sum(
    counted: Counted, shards: int
) -> None:
    path = counted.queue("mail", shards=shards)
    for _ in range(60):  # evenly over time: 1,200 ready, 600 to come
        counted.put(path, *range(20))
        counted.put(path, *range(10), delay_in_seconds=60)
        counted.clock.forward(1)
    counted.record()

    counts = counted.stats(path)["counts"]

    assert counts["ready"] + counts["scheduled"] == 1800
    assert counts["ready"] == pytest.approx(1200, rel=0.1)


def test_what_is_past_its_retention_is_not_counted(counted: Counted) -> None:
    path = counted.queue("mail", history_retention_in_seconds=600)
    for _ in range(120):
        counted.put(path, 1, 2, 3)
        for task in counted.take(path, 3):
            counted.say(task, "SUCCEEDED")
        counted.clock.forward(10)
    counted.record()

    # 360 in twenty minutes; half are past their ten minutes, though nobody removed them yet.
    truth = counted("GET", f"{path}/count", query={"state": "SUCCEEDED"}).json["count"]
    assert truth == pytest.approx(180, abs=3)
    assert counted.stats(path)["counts"]["succeeded"] == pytest.approx(truth, abs=10)


@pytest.mark.parametrize("patience", [5, -1])
def test_a_recount_mends_what_the_recorder_has_missed(counted: Counted, patience: float) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2)
    for _ in range(30):
        counted.put(path, *range(25))
    counted.stream.taken()  # which it never hears of
    counted.clock.forward(1)
    counted.use.recounting.patience = patience
    truth = counted("GET", f"{path}/count").json["by_state"]
    body: dict[str, str] = {}
    steps: list[Any] = []
    while not steps or body:
        answer = counted("POST", f"{path}/recount", body)
        check_documented("Recount", answer.json)
        steps.append(answer.json)
        cursor = answer.json["cursor"]
        body = {"cursor": cursor} if cursor is not None else {}
        counted.clock.forward(1)

    assert len(steps) == (4 if patience < 0 else 1)
    assert steps[-1]["counts"] == truth
    assert steps[-1]["was"] == dict.fromkeys(truth, 0)
    assert (steps[-1]["cancelled"], steps[-1]["was_cancelled"]) == (2, 0)
    assert counted.stats(path)["counts"]["cancelled"] == 2
    shown = counted.stats(path)["counts"]
    assert shown["ready"] + shown["scheduled"] == truth["ENQUEUED"]
    again = counted("POST", f"{path}/recount").json
    assert patience < 0 or again["was"] == again["counts"] == truth


def test_a_series_has_a_point_for_every_minute_of_the_last_hour(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(60)

    metrics = counted.metrics(path)

    points = metrics["points"]
    assert len(points) == 60
    assert points[0]["at"] == "2026-11-21T07:02:00.000000Z"
    assert points[-1]["at"] == "2026-11-21T08:01:00.000000Z"
    assert metrics["step_seconds"] == 60
    assert points[-2] == {
        "at": "2026-11-21T08:00:00.000000Z",
        "enqueued": 5,
        "started": 3,
        "succeeded": 1,
        "failed": 1,
        "dead": 1,
        "cancelled": 0,
        "wait_p50": pytest.approx(1.001, rel=0.025),
        "wait_p99": pytest.approx(1.001, rel=0.025),
        "run_p50": pytest.approx(2, rel=0.025),
        "run_p99": pytest.approx(2, rel=0.025),
    }
    assert points[-1]["wait_p50"] is None
    assert [points[-1][name] for name in EVENTS] == [0] * 6


def test_a_series_is_the_same_in_any_steps_and_over_many_batches(counted: Counted) -> None:
    path = counted.queue("mail", expires_in_seconds=0)
    for minute in range(45):
        counted.put(path, *range(1 + minute % 5))
        for task in counted.take(path, 2):
            counted.say(task, "SUCCEEDED")
        counted.record()
        counted.clock.forward(60)
    begin = {"from": "2026-11-21T08:00:00Z", "to": "2026-11-21T09:00:00Z"}

    by_minute = counted.totals(path, **begin)

    assert by_minute[0] == 135
    for step in ("60", "300", "600", "3600", "7200"):
        assert counted.totals(path, **begin, step_seconds=step) == by_minute
    ten = counted.metrics(path, **begin, step_seconds="600")["points"]
    assert [point["enqueued"] for point in ten] == [30, 30, 30, 30, 15, 0]
    part = {"from": "2026-11-21T08:10:30Z", "to": "2026-11-21T08:20:00Z"}
    assert counted.totals(path, **part)[0] == 30


def test_minutes_are_kept_for_a_week(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(61)
    counted.put(path, 1)
    counted.record()
    counted.put(path, 1)
    counted.record()
    week = {"from": "2026-11-21T08:00:00Z", "to": "2026-11-21T08:01:00Z"}

    counted.clock.forward(6 * 86_400)
    assert counted.totals(path, **week)[0] == 5
    counted.clock.forward(2 * 86_400)
    (point,) = counted.metrics(path, **week)["points"]
    assert [point[name] for name in EVENTS] == [None] * 6


def refused(counted: Counted, **query: str) -> Answer:
    counted.queue("mail")
    answer = counted("GET", "/v1/queues/mail/metrics", query=query)
    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    return answer


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"step_seconds": "0"}, "step_seconds"),
        ({"step_seconds": "59"}, "step_seconds"),
        ({"step_seconds": "90"}, "step_seconds"),
        ({"step_seconds": "-60"}, "step_seconds"),
        ({"step_seconds": "a minute"}, "step_seconds"),
        ({"step_seconds": "6" + "0" * 40}, "step_seconds"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-21 08:00:00"}, "to"),
        ({"from": "2026-11-21T08:00:01Z"}, "from"),
        ({"from": "2026-11-21T09:00:00Z"}, "from"),
        ({"from": "2026-11-21T07:00:00Z", "to": "2026-11-21T07:00:00Z"}, "from"),
        ({"from": "2026-11-20T06:59:00Z"}, "step_seconds"),
        ({"from": "1970-01-01T00:00:00Z"}, "step_seconds"),
        ({"until": "2026-11-21T08:00:00Z"}, "until"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused_by_name(
    counted: Counted, query: dict[str, str], field: str
) -> None:
    assert refused(counted, **query).fields == {field}


def test_too_many_points_are_refused_with_the_step_that_would_do(counted: Counted) -> None:
    query = {"from": "2026-11-14T08:00:00Z", "to": "2026-11-21T08:00:00Z"}
    message = refused(counted, **query).json["errors"][0]["message"]

    least = message.split("at least ")[1].split(" ")[0]
    answer = counted("GET", "/v1/queues/mail/metrics", query={**query, "step_seconds": least})
    assert answer.status == 200
    assert len(answer.json["points"]) <= POINTS


@pytest.mark.parametrize("what", ["stats", "metrics"])
def test_there_are_no_figures_of_a_queue_that_is_not_there(counted: Counted, what: str) -> None:
    assert counted("GET", f"/v1/queues/nothing/{what}").status == 404
    assert counted("GET", f"/v1/queues/-/{what}").status == 404


def test_an_unknown_parameter_is_refused(counted: Counted) -> None:
    path = counted.queue("mail")

    assert counted("GET", f"{path}/stats", query={"exact": "yes"}).fields == {"exact"}
    assert counted("GET", f"{path}/stats", query={"precise": "true"}).fields == {"precise"}


def test_a_glance_at_a_large_queue_reads_a_bounded_part_of_it(counted: Counted) -> None:
    path = counted.queue("mail")
    for _ in range(100):
        counted.put(path, *range(20))
        counted.put(path, *range(20), delay_in_seconds=600)
    counted.record()
    looked_at: list[int] = []
    entries = counted.use.stats.store.entries

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(counted.stream, name)

        def entries(self, *where: Any, **how: Any) -> Any:
            page = entries(*where, **how)
            looked_at.append(len(page.entries))
            return page

    counted.use.stats.store = cast("Store", Watched())
    counted.stats(path)

    assert sum(looked_at) <= 700
