"""Lines that say which task they are about."""

import io
import json
import logging
import pickle
import sys
from collections.abc import Iterator

import pytest

from headrace.client.worker.logs import JsonFormatter, about, configure, configured
from tests.unit.worker.worker_harness import leased

LOG = logging.getLogger("headrace.worker")


@pytest.fixture
def root() -> Iterator[None]:
    """Leave logging as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.usefixtures("root")
def test_text_names_task_and_attempt() -> None:
    out = io.StringIO()
    configure("text", stream=out)

    LOG.info("mail.send succeeded", extra=about(leased()))
    LOG.info("Stopped")

    first, second = out.getvalue().splitlines()
    assert first.endswith("INFO headrace.worker: mail.send succeeded [task task-1, attempt 1]")
    assert second.endswith("INFO headrace.worker: Stopped")


@pytest.mark.usefixtures("root")
def test_json_is_one_object_a_line_with_what_is_known_of_the_task() -> None:
    out = io.StringIO()
    configure("json", stream=out)

    LOG.info("%s succeeded", "mail.send", extra=about(leased(), task_name="mail.send", seconds=0.5))
    LOG.error("It failed", exc_info=ValueError("broken"))

    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "INFO",
        "logger": "headrace.worker",
        "message": "mail.send succeeded",
        "task_id": "task-1",
        "queue": "mail",
        "attempt": 1,
        "task_name": "mail.send",
        "seconds": 0.5,
    }
    assert "ValueError: broken" in second["traceback"]
    assert "task_id" not in second


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="text or json"):
        configure("xml")  # type: ignore[arg-type]


@pytest.mark.usefixtures("root")
def test_another_process_can_be_told_to_log_the_same_way() -> None:
    configure("json", level="WARNING", stream=sys.stdout)
    reported = configured()
    configure("text")

    assert reported is not None
    pickle.loads(pickle.dumps(reported)).again()  # noqa: S301 (our own)

    assert logging.getLogger().level == logging.WARNING
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler.formatter, JsonFormatter)
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stdout
