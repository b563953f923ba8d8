"""The reaper runs itself several times at once: in Lambda by invocations, elsewhere in threads."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.task import State
from headrace.entries import reaper
from headrace.local.gateway import InvocationContext
from headrace.local.tables import Function
from headrace.runtime.function import runs_again
from headrace.runtime.settings import Settings
from headrace.runtime.wiring import UseCases, using
from headrace.store.records.reaper import PARTS, Left, ReaperPart
from headrace.store.services import invoke
from tests.unit.ops.reaper_harness import ReaperDeployment

EVENT = {"part": 1}


@contextmanager
def lambda_api(monkeypatch: pytest.MonkeyPatch, status: int) -> Iterator[list[tuple[str, Any]]]:
    """Stand in for Lambda's API, and note what is invoked."""
    invoked: list[tuple[str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            invoked.append((f"{self.path} {self.headers['X-Amz-Invocation-Type']}", body))
            self.send_response(status)
            self.send_header("X-Amzn-ErrorType", "AccessDeniedException")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield invoked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_function_is_invoked_and_nobody_waits_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lambda_api(monkeypatch, 202) as invoked:
        invoke("the-reaper", EVENT)

    assert invoked == [("/2015-03-31/functions/the-reaper/invocations Event", EVENT)]


def test_a_function_that_may_not_be_invoked_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with lambda_api(monkeypatch, 403), pytest.raises(Unavailable, match="AccessDeniedException"):
        invoke("the-reaper", EVENT)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        invoke("the-reaper", EVENT)


@pytest.mark.parametrize(("status", "taken"), [(202, True), (403, False)])
def test_in_lambda_a_function_runs_again_by_an_invocation(
    monkeypatch: pytest.MonkeyPatch, status: int, *, taken: bool
) -> None:
    with (
        lambda_api(monkeypatch, status) as invoked,
        runs_again("the-reaper", lambda event: pytest.fail(str(event))) as again,
    ):
        assert again(EVENT) is taken
    assert [event for _, event in invoked] == [EVENT]


def test_elsewhere_it_runs_again_in_a_thread_that_is_waited_for() -> None:
    about: ContextVar[str] = ContextVar("about")
    about.set("this")
    seen: list[tuple[object, str, bool]] = []

    def run(event: object) -> None:
        seen.append((event, about.get(), threading.current_thread() is threading.main_thread()))

    with runs_again(None, run) as again:
        assert again(EVENT)
        assert again({"part": 2})

    assert sorted(seen, key=str) == [(EVENT, "this", False), ({"part": 2}, "this", False)]


def test_what_goes_wrong_in_a_thread_goes_wrong_as_a_whole() -> None:
    def run(_event: object) -> None:
        raise RuntimeError("in a thread")

    with pytest.raises(RuntimeError, match="in a thread"), runs_again(None, run) as again:
        again(EVENT)


@pytest.fixture
def there() -> ReaperDeployment:
    """Give a deployment whose last pass was cut, with a lapsed lease in each of its queues."""
    there = ReaperDeployment()
    for number in range(2 * PARTS):
        there.leased(there.queue(f"q{number:02}"), 1)
    last = Left(0, 1, there.at, 1.0, cut=True)
    there.memory.put_record(last.record(), replaces=None)
    return there


def context(seconds: int = 55) -> Any:
    return InvocationContext(Function("Reaper", "reaper.handler", seconds, 512), lambda: False)


def use_cases(there: ReaperDeployment, function: str | None) -> UseCases:
    use = there.container().use
    return use.but(settings=replace(use.settings, function=function))


@pytest.mark.slow
def test_the_timer_s_pass_has_others_take_their_parts_in_lambda(
    monkeypatch: pytest.MonkeyPatch, there: ReaperDeployment
) -> None:
    with lambda_api(monkeypatch, 202) as invoked, using(use_cases(there, "the-reaper")):
        reaped = reaper.handler({"source": "aws.events"}, context())

    parts = [part for _, event in invoked if (part := ReaperPart.of(event)) is not None]
    assert sorted(part.number for part in parts) == list(range(1, PARTS))
    assert {part.parts for part in parts} == {PARTS}
    assert reaped["retried"] == 2
    assert there.number(State.INFLIGHT) == 2 * PARTS - 2
    # What is invoked does its part, and runs nothing again.
    with using(use_cases(there, "the-reaper")):
        for _, event in invoked:
            assert reaper.handler(event, context())["retried"] == 2
    assert there.number(State.INFLIGHT) == 0


def test_the_timer_s_pass_does_all_parts_in_this_process_on_one_machine(
    there: ReaperDeployment,
) -> None:
    with using(use_cases(there, None)):
        reaped = reaper.handler({"source": "aws.events"}, context())

    assert reaped["parts"] == PARTS
    assert there.number(State.INFLIGHT) == 0


def test_a_pass_ends_in_time_for_its_last_page(there: ReaperDeployment) -> None:
    with using(use_cases(there, None)):
        late = context(int(reaper.LAST_PAGE_SECONDS))
        assert reaper.handler({"source": "aws.events"}, late)["cut"]


def test_which_function_this_is_lambda_says() -> None:
    assert Settings.from_env({"AWS_LAMBDA_FUNCTION_NAME": "the-reaper"}).function == "the-reaper"
    assert Settings.from_env({}).function is None
