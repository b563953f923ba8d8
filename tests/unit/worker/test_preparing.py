"""What a worker does about queues and schedules before its first task."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Client, Worker
from headrace.client.app.sync import MARK
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.testing import MemoryService


def digest(to: str = "all") -> None: ...


def shop(shards: int = 2, *, create_queues: bool = True, **schedules: str) -> App:
    """An app with a queue, and schedules by name and cron."""
    app = App(create_queues=create_queues)
    app.queue("mail", shards=shards)
    task = app.task(queue="mail", name="digest")(digest)
    for name, cron in schedules.items():
        app.periodic(cron=cron, name=name)(task)
    return app


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The lines that were logged, by level."""

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (
                record.getMessage() not in ("Stopping", "Stopped")
                and "takes tasks" not in record.msg
            ):
                lines.append(f"{record.levelname} {record.getMessage()}")

    lines: list[str] = []
    kept, log = Kept(), logging.getLogger("headrace.worker")
    caplog.set_level(logging.INFO, "headrace.worker")
    log.addHandler(kept)
    yield lines
    log.removeHandler(kept)


def started(
    app: App, client: Client, *, sync: bool = False, prune: bool = False, path: str | None = "a:app"
) -> None:
    Worker(app, client=client, app_path=path, sync=sync, prune=prune).run(burst=True)


def with_key(service: MemoryService, role: str) -> Client:
    return service.connect(service.client.create_key(role, role, ["*"]).secret)


def test_what_is_missing_is_made_and_nothing_is_said(
    service: MemoryService, warned: list[str]
) -> None:
    started(shop(early="0 8 * * *"), service.client)

    assert warned == []
    assert service.client.get_queue("mail").shards == 2
    assert service.client.get_schedule("mail", "early").tags == {MARK: "a:app"}


def test_drift_is_one_line_for_each_difference_and_the_command_that_mends_it(
    service: MemoryService, warned: list[str]
) -> None:
    started(shop(early="0 8 * * *", late="0 20 * * *"), service.client)
    stored = service.client.get_schedule("mail", "early")
    service.client.put_schedule("mail", "early", cron="0 7 * * *", tags=stored.tags, payload="x")
    service.client.edit_queue("mail", shards=1, description="by hand")

    started(shop(early="0 8 * * *"), service.client)

    cron = "cron is 0 7 * * *, declared is 0 8 * * *"
    assert warned == [
        "WARNING Drift: queue mail: shards is 1, declared is 2",
        f"WARNING Drift: schedule early of mail: {cron}; payload differs",
        "WARNING Drift: schedule late of mail is no longer declared",
        "WARNING To mend that: headrace sync a:app --prune",
    ]
    assert service.client.get_queue("mail").shards == 1
    assert service.client.get_schedule("mail", "early").cron == "0 7 * * *"


def test_with_sync_it_is_mended_first_and_only_prune_removes(
    service: MemoryService, warned: list[str]
) -> None:
    started(shop(early="0 8 * * *", late="0 20 * * *"), service.client)
    new = shop(3, early="0 9 * * *")

    started(new, service.client, sync=True)

    assert warned == [
        "INFO Synced: change queue mail: shards is 2, declared is 3",
        "INFO Synced: change schedule early of mail: cron is 0 8 * * *, declared is 0 9 * * *",
    ]
    assert service.client.get_queue("mail").shards == 3
    assert service.client.get_schedule("mail", "late").cron == "0 20 * * *"
    warned.clear()
    started(new, service.client, sync=True, prune=True)
    started(new, service.client)
    assert warned == ["INFO Synced: remove schedule late of mail"]


def test_a_worker_whose_key_may_not_make_queues_says_so(
    service: MemoryService, warned: list[str]
) -> None:
    with pytest.raises(NotFound):
        started(shop(early="0 8 * * *"), with_key(service, "worker"))
    with pytest.raises(NotFound):
        started(shop(create_queues=False), service.client)

    assert warned[0].startswith("WARNING Queues and schedules are left as they are: there is no")
    assert "headrace queue create mail" in warned[0]
    assert "create_queues=False" in warned[1]


# -- what a worker is given, checked ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field", "limit"),
    [
        ({"queues": []}, "queues", "1 to 100"),
        ({"queues": "mail"}, "queues", "list of names"),
        ({"queues": {"mail": float("nan")}}, "queues.mail", "above 0"),
        ({"queues": {"mail": 1}, "strict": True}, "strict", "exclude each other"),
        ({"concurrency": 0}, "concurrency", "1 to 10000"),
        ({"lease_seconds": 0.5}, "lease_seconds", "1 to 43200"),
        ({"name": "x" * 257}, "name", "256 bytes"),
        ({"prune": True}, "prune", "needs sync"),
        ({"isolate": True}, "app", "variable of a module"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_its_limit(
    given: dict[str, Any], field: str, limit: str
) -> None:
    with pytest.raises(InvalidRequest, match=limit) as refused:
        Worker(App(url="https://queue.test", key="k"), **{"queues": ["mail"], **given})

    assert [error.field for error in refused.value.errors] == [field]


def test_an_unknown_option_is_refused_with_the_nearest_right_name() -> None:
    with pytest.raises(TypeError, match="no option concurency: did you mean concurrency"):
        Worker(App(url="https://queue.test", key="k"), concurency=2)  # type: ignore[call-arg]
