"""Stations from a command line: ``headrace station start`` starts this in a new process.

Progress goes to stderr, or with ``--json`` as lines of JSON to stdout, and the figures of the
whole run to stdout.  EMR Serverless starts it as it is.
"""

import importlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from pyspark.errors import (
    AnalysisException,
    PySparkAttributeError,
    PySparkTypeError,
    PySparkValueError,
)

from headrace.cli.jobs import OUTPUT, STATION_START, parsed
from headrace.domain.errors import HeadraceError, InvalidRequest
from headrace.runtime.metrics import STATION, emit
from headrace.spark.exit_codes import DONE, exit_code, first_line, silence_logs
from headrace.spark.session import session
from headrace.spark.stations.figures import Batch, PrometheusFigures, Run, logged, of_batch
from headrace.spark.stations.station import Station
from headrace.spark.stations.together import FAIR, run_together

CONF: Final = {
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # payloads may be large
    "spark.speculation": "false",
}
LOCAL: Final = {
    "spark.python.daemon.module": "headrace.spark.stations.daemon",
    "spark.master": "local[*,4]",  # a part that dies is run again, as on a cluster
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "8",
}

_MISUSE: Final = AnalysisException, PySparkAttributeError, PySparkTypeError, PySparkValueError


class StationCall(NamedTuple):
    """One run of stations that was asked for."""

    station: tuple[str, ...]
    drain: bool
    until: datetime | None
    prometheus: tuple[str, int] | None
    cloudwatch: bool
    json: bool
    quiet: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one station or several; return the exit code."""
    command = click.Command("headrace station start", params=[*STATION_START.params, *OUTPUT])
    command.help, command.callback = __doc__, StationCall
    called = parsed(command, arguments)
    if isinstance(called, int):
        return called
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    silence_logs()
    stop = threading.Event()

    def job() -> int:
        with _stopped_by_signals(stop) as reinstall, _served(called.prometheus) as served:
            runs = _run(called, stop, reinstall, served)
        for name, run in runs.items():
            print(json.dumps({**({"station": name} if len(runs) > 1 else {}), **run.body()}))
        return DONE

    return exit_code(job, interrupted="interrupted; the batch was released")


def _run(
    called: StationCall,
    stop: threading.Event,
    reinstall: Callable[[], None],
    served: PrometheusFigures | None,
) -> dict[str, Run]:
    stations = {name: load(name) for name in called.station}
    if len(stations) < len(called.station):
        message = "a station is named twice: one run of it is enough, or give it another name"
        raise InvalidRequest(message)
    first, several = next(iter(stations)), len(stations) > 1
    if not (called.quiet or called.json):
        print("starting Spark", file=sys.stderr, flush=True)
    local = {} if "PYSPARK_GATEWAY_PORT" in os.environ else LOCAL
    about = " ".join(station.about for station in stations.values())
    spark = session(f"headrace station {about}", **local, **CONF, **(FAIR if several else {}))
    reinstall()  # once more: Spark listens to Ctrl-C itself
    try:
        announce = _announcer(called, served, named=several)
        given: dict[str, Any] = {"drain": called.drain, "until": called.until, "stop": stop}
        if several:
            return run_together(stations, spark, on_batch=announce, **given)
        return {first: stations[first].run(spark, on_batch=partial(announce, first), **given)}
    except _MISUSE as error:
        message = f"transform: {first_line(error)}"
        raise InvalidRequest(message) from error
    finally:
        spark.stop()


def load(name: str) -> Station:
    """Import the station that *name* says, as ``pipelines.air:cleaning``, from this folder.

    Raises InvalidRequest that says what is missing, or what went wrong inside the module.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        message = f"{name!r} names no station: say module:station, as in pipelines.air:cleaning"
        raise InvalidRequest(message)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    # The workers import the same modules, to find the functions of the transform there.
    path = os.environ.get("PYTHONPATH", "")
    if here not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, path]))
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            message = f"there is no module {error.name} in {here} nor among what is installed"
            raise InvalidRequest(message) from error
        raise _broken(module_name, error) from error
    except HeadraceError:
        raise
    except Exception as error:
        raise _broken(module_name, error) from error
    found = getattr(found, attribute, None)
    if not isinstance(found, Station):
        message = f"{name} is no Station but of type {type(found).__name__}"
        raise InvalidRequest(message)
    return found


def _broken(module_name: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"module {module_name}: {type(error).__name__}: {error}")


def _announcer(
    called: StationCall, served: PrometheusFigures | None, *, named: bool
) -> Callable[[str, Batch], None]:
    def announce(name: str, batch: Batch) -> None:
        logged(batch)
        if served is not None:
            served.add(name, batch)
        if called.cloudwatch:
            emit(name, of_batch(batch), datetime.now(UTC), dimension=STATION)
        if called.json:
            body = {"station": name, **batch.body()} if named else batch.body()
            print(json.dumps(body, ensure_ascii=False), flush=True)
        elif not called.quiet:
            line = f"{name} {batch.line()}" if named else batch.line()
            print(line, file=sys.stderr, flush=True)

    return announce


@contextmanager
def _served(where: tuple[str, int] | None) -> Iterator[PrometheusFigures | None]:
    """Serve metrics to Prometheus while this lasts, if host and port are given."""
    if where is None:
        yield None
        return
    try:
        from prometheus_client import start_http_server  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        message = "--prometheus needs a package: pip install 'headrace[prometheus]'"
        raise InvalidRequest(message) from error
    figures = PrometheusFigures()
    host, port = where
    server, thread = start_http_server(port, host)
    try:
        yield figures
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[Callable[[], None]]:
    """Finish the batch at the first signal, and stop without finishing at the second.

    Yield a function that installs the signal handlers again.
    """

    def on_signal(number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        name = signal.Signals(number).name
        print(f"{name}: finishing this batch; once more gives it back", file=sys.stderr, flush=True)

    def reinstall() -> None:
        for number in before:
            signal.signal(number, on_signal)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    reinstall()
    try:
        yield reinstall
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
