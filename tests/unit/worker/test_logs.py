"""Lines that say which task they are about."""

import asyncio
import io
import json
import logging
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.worker.logs import (
    JsonFormatter,
    TaskLogFilter,
    about,
    configure,
    configured,
    together,
)
from tests.unit.worker.worker_harness import held, leased

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
    assert first.endswith(
        "INFO headrace.worker: mail.send succeeded [task task-1, queue mail, attempt 1]"
    )
    assert second.endswith("INFO headrace.worker: Stopped")


HOSTILE = "mail\x1b[2J\x9b\u202e\n2026-11-21 08:00:00,000 INFO headrace.worker: all is well"


@pytest.mark.usefixtures("root")
def test_text_from_outside_can_forge_no_line_and_drive_no_terminal() -> None:
    out = io.StringIO()
    configure("text", stream=out)
    error = ValueError(HOSTILE)
    LOG.error("%s failed", HOSTILE, exc_info=error, extra=about(leased(), task_name=HOSTILE))

    first, *others = out.getvalue().splitlines()
    assert "mail\\x1b[2J\\x9b\\u202e" in first
    assert all(line.startswith("    ") for line in others)
    assert "".join(out.getvalue().splitlines()).isprintable()


@pytest.mark.usefixtures("root")
def test_json_lines_hold_text_from_outside_in_escapes() -> None:
    out = io.StringIO()
    configure("json", stream=out)
    LOG.info("%s failed", HOSTILE)

    [line] = out.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["message"] == f"{HOSTILE} failed"


@pytest.mark.usefixtures("root")
def test_a_priority_is_named_where_there_is_one() -> None:
    out = io.StringIO()
    high = msgspec.structs.replace(leased(), priority="high")

    configure("text", stream=out)
    LOG.info("Begun", extra=about(high))
    configure("json", stream=out)
    LOG.info("Begun", extra=about(high))
    LOG.info("Begun", extra=about(leased()))

    text, first, second = out.getvalue().splitlines()
    assert text.endswith("[task task-1, queue mail, attempt 1, high priority]")
    assert json.loads(first)["priority"] == "high"
    assert "priority" not in json.loads(second)


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


def logged(out: io.StringIO) -> list[dict[str, Any]]:
    """Return what was logged as JSON."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def out(root: None) -> io.StringIO:
    stream = io.StringIO()
    configure("json", stream=stream)
    return stream


def test_json_keeps_the_extra_fields_of_a_line(out: io.StringIO) -> None:
    logging.getLogger("shop").info("sold", extra={"order": 7, "lines": [{"sku": "a"}], "who": None})

    (line,) = logged(out)
    assert (line["order"], line["lines"], line["who"]) == (7, [{"sku": "a"}], None)
    assert line.keys() == {"time", "level", "logger", "message", "order", "lines", "who"}


def test_an_extra_field_does_not_take_the_place_of_the_lines_own(out: io.StringIO) -> None:
    logging.getLogger("shop").info("sold", extra={"level": "gold", "time": "noon"})

    (line,) = logged(out)
    assert (line["level"], line["extra_level"], line["extra_time"]) == ("INFO", "gold", "noon")


@pytest.mark.parametrize("value", [float("nan"), {(1, 2): 3}, object(), {1, 2}])
def test_a_value_that_is_no_json_is_written_as_text(out: io.StringIO, value: object) -> None:
    logging.getLogger("shop").info("sold", extra={"value": value, "order": 7})

    (line,) = logged(out)
    assert (line["value"], line["order"]) == (str(value), 7)


def test_a_value_that_holds_itself_loses_no_line(out: io.StringIO) -> None:
    ring: list[Any] = []
    ring.append(ring)

    logging.getLogger("shop").info("sold", extra={"value": ring})

    assert logged(out)[0]["value"] == "[[...]]"


def test_where_a_line_comes_from_is_kept(out: io.StringIO) -> None:
    logging.getLogger("shop").info("sold", stack_info=True)

    assert "test_where_a_line_comes_from_is_kept" in logged(out)[0]["stack"]


def run(app: App) -> None:
    task = leased()
    if app.route(task).kind == "sync":
        app.execute(task, held())
    else:
        asyncio.run(app.execute_async(task, held()))


TASK = {"task_id": "task-1", "queue": "mail", "attempt": 1, "task_name": "letters"}


def of_task(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in TASK if name in line}


def test_the_lines_of_a_handler_and_its_middlewares_carry_its_task(out: io.StringIO) -> None:
    app, log = App(), logging.getLogger("shop")

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        log.info("around %s", ctx.name)
        yield

    @app.handler(queue="mail", name="letters")
    def letters(payload: Any) -> None:
        log.info("inside", extra={"order": 7})

    run(app)
    log.info("after")

    around_it, inside, after = logged(out)
    assert around_it["message"] == "around letters"
    assert of_task(around_it) == of_task(inside) == TASK
    assert inside["order"] == 7
    assert of_task(after) == {}


def test_the_lines_of_an_async_handler_carry_it_in_its_tasks_and_threads_too(
    out: io.StringIO,
) -> None:
    app, log = App(), logging.getLogger("shop")

    async def part() -> None:
        log.info("in a task")

    @app.handler(queue="mail", name="letters")
    async def letters(payload: Any) -> None:
        log.info("inside")
        await asyncio.gather(part(), asyncio.to_thread(log.info, "in a thread"))

    run(app)

    lines = logged(out)
    assert {line["message"] for line in lines} == {"inside", "in a task", "in a thread"}
    assert [of_task(line) for line in lines] == [TASK] * 3


def test_async_handlers_side_by_side_do_not_mix_up_their_tasks(out: io.StringIO) -> None:
    app, log = App(), logging.getLogger("shop")

    @app.handler(queue="mail")
    async def letters(ctx: Context) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            log.info(ctx.id)

    async def both() -> None:
        await asyncio.gather(*(app.execute_async(leased(n), held(n)) for n in (1, 2)))

    asyncio.run(both())

    lines = logged(out)
    assert len(lines) == 6
    assert all(line["task_id"] == line["message"] for line in lines)


def test_a_field_that_the_line_has_itself_stays(out: io.StringIO) -> None:
    app = App()

    @app.handler(queue="mail", name="letters")
    def letters(payload: Any) -> None:
        logging.getLogger("shop").info("moved on", extra={"queue": "fax"})

    run(app)

    assert of_task(logged(out)[0]) == TASK | {"queue": "fax"}


@pytest.mark.usefixtures("root")
def test_text_names_the_task_in_a_handlers_lines() -> None:
    out, app = io.StringIO(), App()
    configure("text", stream=out)

    @app.handler(queue="mail")
    def letters(payload: Any) -> None:
        logging.getLogger("shop").info("inside")

    run(app)

    assert out.getvalue().endswith("INFO shop: inside [task task-1, queue mail, attempt 1]\n")


def test_a_programs_own_log_handler_takes_the_filter() -> None:
    seen: list[logging.LogRecord] = []
    app, log = App(), logging.getLogger("shop.own")
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign, assignment]
    handler.addFilter(TaskLogFilter())
    log.addHandler(handler)

    @app.handler(queue="mail")
    def letters(payload: Any) -> None:
        log.warning("inside")

    try:
        run(app)
    finally:
        log.removeHandler(handler)

    assert vars(seen[0])["task_id"] == "task-1"


def test_what_a_handler_puts_in_context_variables_ends_with_its_attempt() -> None:
    app = App()
    variable: ContextVar[str] = ContextVar("variable", default="")
    seen = []

    @app.handler(queue="mail")
    def letters(payload: Any) -> None:
        seen.append(variable.get())
        variable.set("of the first")

    run(app)
    run(app)

    assert seen == ["", ""]


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="text or json"):
        configure("xml")  # type: ignore[arg-type]


@pytest.mark.usefixtures("root")
def test_another_process_can_be_told_to_log_the_same_way() -> None:
    logging.getLogger().handlers.clear()  # those of pytest
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


class Writes(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []

    def write(self, text: str) -> int:
        self.all.append(text)
        return super().write(text)


@pytest.mark.usefixtures("root")
def test_lines_of_a_block_are_written_in_one_piece_and_those_of_other_threads_at_once() -> None:
    out = Writes()
    configure("text", stream=out)
    other = threading.Thread(target=LOG.info, args=("of another",))

    with together():
        LOG.info("first")
        LOG.info("second")
        other.start()
        other.join()
    LOG.info("after it")

    other_line, block, after = out.all
    assert other_line.endswith("of another\n")
    assert [line.rpartition(" ")[2] for line in block.splitlines()] == ["first", "second"]
    assert after.endswith("after it\n")


@pytest.mark.usefixtures("root")
def test_a_piece_is_no_more_than_a_pipe_takes_whole_and_ends_with_a_line() -> None:
    out = Writes()
    configure("json", stream=out)

    with together():
        for _ in range(25):
            LOG.info("Straße " * 20)
        LOG.info("x" * 5000)

    assert len(out.all) > 2
    assert all(piece.endswith("\n") for piece in out.all)
    *pieces, long_line = [len(piece.encode()) for piece in out.all]
    assert max(pieces) <= 4096 < long_line
    assert len([json.loads(line) for line in out.getvalue().splitlines()]) == 26


@pytest.mark.usefixtures("root")
def test_a_line_of_a_block_says_what_was_so_when_it_was_logged() -> None:
    out = io.StringIO()
    configure("text", stream=out)
    seen = [1]

    with together():
        LOG.info("seen %s", seen)
        seen.clear()

    assert out.getvalue().endswith("seen [1]\n")


@pytest.mark.usefixtures("root")
def test_a_warning_in_a_block_is_written_at_once_behind_the_lines_before_it() -> None:
    out = Writes()
    configure("text", stream=out)

    with together():
        LOG.info("first")
        LOG.warning("second")
        at_once = out.getvalue()
        LOG.info("third")

    assert [line.rpartition(" ")[2] for line in at_once.splitlines()] == ["first", "second"]
    assert out.getvalue().endswith("third\n")


@pytest.mark.usefixtures("root")
def test_a_line_that_cannot_be_made_keeps_no_other_back(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers.clear()  # those of pytest
    out = io.StringIO()
    configure("text", stream=out)

    with together():
        LOG.info("first")
        LOG.info("%d", "no number")
        LOG.info("third")

    assert [line.rpartition(" ")[2] for line in out.getvalue().splitlines()] == ["first", "third"]
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.usefixtures("root")
def test_times_are_as_the_base_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger().handlers.clear()  # those of pytest
    configure("text", stream=io.StringIO())
    record = logging.makeLogRecord({"created": 1_800_000_000.25, "msecs": 250.0})
    for converter in (time.gmtime, time.localtime):
        monkeypatch.setattr(logging.Formatter, "converter", staticmethod(converter))
        (handler,) = logging.getLogger().handlers
        assert handler.formatter is not None
        assert handler.formatter.formatTime(record) == logging.Formatter().formatTime(record)


@pytest.mark.usefixtures("root")
def test_handlers_that_do_not_write_to_the_terminal_stay() -> None:
    root = logging.getLogger()
    memory, terminal = logging.StreamHandler(io.StringIO()), logging.StreamHandler(sys.stderr)
    root.handlers[:] = [memory, terminal]

    configure("text", stream=io.StringIO())
    configure("json", stream=io.StringIO())

    assert memory in root.handlers
    assert terminal not in root.handlers
    assert len(root.handlers) == 2
