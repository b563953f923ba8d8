"""The pytest plugin: fixtures that start nothing until they are used.

``headrace_service``, ``headrace_client``, ``headrace_clock``, ``headrace_faults`` and
``headrace_inline``; override ``headrace_app`` to have your app talk to them.  See
``docs/guide/testing.md``.
"""

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from headrace import testing
from headrace.domain.errors import InvalidRequest
from headrace.testing.conditions import SEED_VARIABLE, Faults, ManualClock, chosen_seed

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client
    from headrace.testing.inlining import Inline
    from headrace.testing.service import MemoryService

_SEED: Final = "headrace_seed"
_USE_IT: Final = {"headrace_service", "headrace_inline"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    parser.getgroup("headrace").addoption(
        "--headrace-seed",
        type=int,
        metavar="N",
        help=f"what the faults of headrace's fixtures are drawn from (else {SEED_VARIABLE})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, once for all processes that tests run in."""
    given = getattr(config, "workerinput", {}).get(_SEED, config.option.headrace_seed)
    try:
        config.option.headrace_seed = chosen_seed() if given is None else given
    except InvalidRequest as wrong:
        raise pytest.UsageError(str(wrong)) from wrong


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 (of pytest-xdist, if it is there)
    """Pass the seed on to another process of pytest-xdist."""
    node.workerinput[_SEED] = node.config.option.headrace_seed


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed."""
    return f"headrace: {_repeats(config)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the seed again below a failure of a test that used it; shorten what TaskDied prints."""
    inlining = sys.modules.get("headrace.testing.inlining")  # pytest starts without
    if inlining is not None and call.excinfo and isinstance(call.excinfo.value, inlining.TaskDied):
        _cut(call.excinfo.value)
    report = yield
    if report.failed and _USE_IT & set(getattr(item, "fixturenames", ())):
        report.sections.append(("headrace", _repeats(item.config)))
    return report


def _cut(error: BaseException) -> None:
    """Leave out the way from the test into the service: what went wrong is in the message."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        name: str = place.tb_next.tb_frame.f_globals.get("__name__", "")
        if name.startswith("headrace."):
            place.tb_next = None
        place = place.tb_next


def _repeats(config: pytest.Config) -> str:
    seed = config.option.headrace_seed
    return f"--headrace-seed={seed} draws the same faults again"


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
    headrace_app: "App | None", headrace_clock: ManualClock, pytestconfig: pytest.Config
) -> "Iterator[MemoryService]":
    """Give a service in memory with nothing in it; ``headrace_app`` talks to it."""
    with testing.MemoryService(
        clock=headrace_clock, seed=pytestconfig.option.headrace_seed
    ) as service:
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
def headrace_faults(headrace_service: "MemoryService") -> Faults:
    """Give the faults of ``headrace_service``."""
    return headrace_service.faults


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
