"""A file whose large payloads are kept in a folder beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.embedded.service import EmbeddedService, service_on
from headrace.embedded.timers import LogRecorder, file_store
from headrace.runtime.wiring import Settings

LARGE = '"' + "x" * 5_000 + '"'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EmbeddedService]:
    settings = Settings(admin_key="embedded", payload_offload_bytes=1024)
    service = service_on(str(tmp_path / "tasks.db"), settings)
    service.use.queues.create("mail", QueueSettings())
    yield service
    service.close()


def kept(folder: Path) -> list[Path]:
    return [one for one in (folder / "tasks.db-payloads").rglob("*") if one.is_file()]


def test_a_payload_goes_with_its_task_when_the_log_is_recorded(
    service: EmbeddedService, tmp_path: Path
) -> None:
    done = service.use.tasks.enqueue("mail", [TaskSpec(LARGE), TaskSpec(LARGE), TaskSpec("1")])
    assert len(kept(tmp_path)) == 2
    service.use.tasks.delete(done[0].id or "")
    assert len(kept(tmp_path)) == 2
    recorder = LogRecorder(service.use, file_store(service))
    while recorder.step() == 0.0:
        pass

    assert len(kept(tmp_path)) == 1
