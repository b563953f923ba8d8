"""The pytest plugin: fixtures that start nothing until a test uses them.

``headrace_service``, ``headrace_client``, ``headrace_clock`` and ``headrace_inline``.  Override
``headrace_app`` to connect your app to them.  See ``docs/how-to/testing.md``.
"""

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from headrace import testing
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client
    from headrace.testing.inlining import Inline
    from headrace.testing.service import MemoryService


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shorten the traceback of TaskDied."""
    inlining = sys.modules.get("headrace.testing.inlining")  # pytest starts without
    if inlining is not None and call.excinfo and isinstance(call.excinfo.value, inlining.TaskDied):
        _cut(call.excinfo.value)
    return (yield)


def _cut(error: BaseException) -> None:
    """Leave out the way from the test into the service: what went wrong is in the message."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        name: str = place.tb_next.tb_frame.f_globals.get("__name__", "")
        if name.startswith("headrace."):
            place.tb_next = None
        place = place.tb_next


@pytest.fixture
def headrace_app() -> "App | None":
    """Override this with your app: what it enqueues then goes to the service of the test."""
    return None


@pytest.fixture
def headrace_clock() -> ManualClock:
    """Give the clock of ``headrace_service``."""
    return ManualClock()


@pytest.fixture
def headrace_service(
    headrace_app: "App | None", headrace_clock: ManualClock
) -> "Iterator[MemoryService]":
    """Give a service in memory with nothing in it; ``headrace_app`` talks to it."""
    with testing.MemoryService(clock=headrace_clock) as service:
        if headrace_app is None:
            yield service
        else:
            with service.serving(headrace_app):
                yield service


@pytest.fixture
def headrace_client(headrace_service: "MemoryService") -> "Client":
    """Give a client of ``headrace_service`` that may do everything."""
    return headrace_service.client


@pytest.fixture
def headrace_inline(
    headrace_app: "App | None", headrace_service: "MemoryService"
) -> "Iterator[Inline]":
    """Let what ``headrace_app`` enqueues run at once."""
    if headrace_app is None:
        pytest.fail(
            "headrace_inline needs your app: override the fixture headrace_app to return it",
            pytrace=False,
        )
    with testing.inline(headrace_app, service=headrace_service) as line:
        yield line
