"""The pytest plugin, tried in a test session of its own."""

import logging
from importlib import import_module

import pytest

pytest_plugins = ["pytester"]

APP = """
import pytest
from headrace import App

app = App()
@app.task(queue="mail")
def send(to: str) -> str:
    return to.upper()

@pytest.fixture
def headrace_app():
    return app
"""


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Load the service once, and not again in every session within this one."""
    import_module("headrace.testing.inlining")


@pytest.fixture(autouse=True)
def as_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print each message once: not as in CI, and without the log of a Lambda function."""
    monkeypatch.setattr(logging.getLogger("headrace"), "handlers", [])
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:schemathesis", "-p", "no:cacheprovider", *args)


def test_the_fixtures_are_one_service(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(headrace_service, headrace_client, headrace_clock):
            assert headrace_client is headrace_service.client
            assert headrace_clock is headrace_service.clock
            headrace_client.create_queue("mail")
            headrace_client.enqueue("mail", delay_in_seconds=60)
            headrace_clock.forward(60)
            assert len(headrace_client.dequeue("mail").tasks) == 1

        def test_another_is_empty(headrace_client):
            assert list(headrace_client.list_queues()) == []
    """)

    run(pytester).assert_outcomes(passed=2)


def test_a_task_that_died_prints_its_own_error_once_and_none_of_our_frames(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(APP.replace("return to.upper()", "raise ValueError('no such box')"))
    pytester.makepyfile("""
        from conftest import send

        def test_it(headrace_inline):
            send.options(max_retries=0).enqueue(to="ada")
    """)

    result = run(pytester)

    result.assert_outcomes(failed=1)
    printed = result.stdout.str()
    assert printed.count("raise ValueError('no such box')") == 1
    assert "httpx2" not in printed
    assert "headrace/" not in printed
    assert "> " in printed
    assert 'send.options(max_retries=0).enqueue(to="ada")' in printed
    assert printed.count("send failed: ValueError: no such box") == 1
