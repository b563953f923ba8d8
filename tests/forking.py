"""Run the tests in some processes: ``pytest -p tests.forking --processes 3``.

The tests are collected once, and the process is forked then.  With pytest-xdist each process
imports and collects all tests.  Each process takes a few tests at a time, and sends their reports
to the process that prints.
"""

import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, NoReturn

import pytest

_AT_ONCE: Final = 8
"""The most tests, all of one file, that a process takes at a time."""
_NUMBER: Final = 4  # bytes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --processes."""
    parser.addoption("--processes", type=int, default=1, help="how many processes run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in processes forked from this one, and report their results."""
    number = session.config.getoption("--processes")
    stays = session.config.option.collectonly or session.config.option.usepdb
    if number < 2 or len(session.items) < 2 or session.testsfailed or stays:
        return None
    parts = list(_parts(session.items))
    assert len(parts) * _NUMBER < 65_536, "a pipe holds no more"
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # noqa: SLF001  one folder for all
    queue, numbers = os.pipe()
    os.write(numbers, b"".join(n.to_bytes(_NUMBER, "big") for n in range(len(parts))))
    os.close(numbers)
    children: dict[Connection, int] = {}
    try:
        for _ in range(number):
            reports, out = Pipe(duplex=False)
            child = os.fork()
            if not child:
                for inherited in (*children, reports):
                    inherited.close()  # so that a report fails when nobody reads it any more
                _run(session, _taken(parts, queue), out)
            children[reports] = child
            out.close()
        os.close(queue)
        _report(session, children)
    finally:
        for child in children.values():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
    return True


def _parts(tests: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
    for _, of_file in groupby(tests, lambda item: item.path):
        while part := list(islice(of_file, _AT_ONCE)):
            yield part


def _taken(parts: Sequence[list[pytest.Item]], queue: int) -> Iterator[pytest.Item]:
    while number := os.read(queue, _NUMBER):
        yield from parts[int.from_bytes(number, "big")]


def _run(session: pytest.Session, items: Iterator[pytest.Item], out: Connection) -> NoReturn:
    """Run *items*, send their reports, and end the process."""
    config = session.config
    capturing: Any = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()  # into files that no other process writes to
    config.pluginmanager.unregister(name="terminalreporter")

    class Sender:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            out.send(nodeid)

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            out.send(config.hook.pytest_report_to_serializable(config=config, report=report))

    config.pluginmanager.register(Sender())
    status = 1
    try:
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        status = 0
    except BaseException:  # noqa: BLE001  it would go on in what the other process does
        capturing.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(status)


def _report(session: pytest.Session, children: dict[Connection, int]) -> None:
    """Pass on each report as if its test had run here; forget children that have ended."""
    hook, ran = session.config.hook, 0
    begun: dict[Connection, str] = {}
    while children and not session.shouldfail:
        for reports in wait(list(children)):
            assert isinstance(reports, Connection)
            try:
                data = reports.recv()
            except EOFError:
                _, status = os.waitpid(children.pop(reports), 0)
                if status:
                    session.shouldfail = f"a process ended ({status}) in {begun.get(reports)}"
                continue
            if isinstance(data, str):
                begun[reports] = data
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            ran += report.when == "teardown"
            hook.pytest_runtest_logreport(report=report)
    if ran != len(session.items) and not session.shouldfail:
        session.shouldfail = f"{len(session.items)} tests, and {ran} have run"
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
