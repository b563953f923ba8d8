"""`headrace work`: start workers of an app.  `headrace worker`: list and stop workers."""

import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace import garbage
from headrace.cli import params
from headrace.cli.commands import CliCommand, CliGroup, query_option, queue_names, split
from headrace.cli.doctor import SILENT_SECONDS
from headrace.cli.outbox import relaying
from headrace.cli.output import Column, answer, done, span, table, when
from headrace.cli.params import TIME
from headrace.cli.processes import RECYCLE, Supervisor
from headrace.cli.session import CliSession, Exit, Failed, need_packages
from headrace.domain.errors import HeadraceError, InvalidRequest
from headrace.wire.service import WorkerSeen

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client
    from headrace.client.worker.service import Observer


def _queues(texts: tuple[str, ...], *, strict: bool) -> list[str] | dict[str, float] | None:
    """Read `mail,news` as a list of names, and `mail=3,news` as names with weights.

    A name without a weight has the weight 1. Returns None if no queue is named.
    """
    found: dict[str, float] = {}
    weighted = False
    for text in split(texts):
        name, equals, weight = text.partition("=")
        try:
            found[name] = float(weight) if equals else 1.0
        except ValueError:
            found[name] = math.nan
        if not (name and found[name] > 0):
            raise click.BadParameter(
                f"{text!r} is no queue, nor a queue with its weight such as mail=3",
                param_hint="'--queues'",
            )
        weighted = weighted or bool(equals)
    if weighted and strict:
        raise click.UsageError(
            "--strict takes queues in the order given, without weights: --queues urgent,bulk"
        )
    return (found if weighted else list(found)) or None


@click.command(
    "work",
    cls=CliCommand,
    example="headrace work shop\n"
    "headrace work shop.tasks:app --queues mail=3,news --concurrency 20 --log-format json\n"
    "headrace work shop.tasks:app --queues urgent,bulk --strict",
)
@click.argument("app", metavar="MODULE[:APP]")
@click.option(
    "--queues",
    multiple=True,
    metavar="QUEUE[=N],…",
    shell_complete=queue_names,
    help="Queues, and how often each is polled; default: all queues that the app works on.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Poll a queue only while those before it are empty.",
)
@click.option(
    "--concurrency",
    "-c",
    type=int,
    metavar="N",
    help="Tasks at a time: 10, or with --isolate one per processor.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Start and supervise N worker processes; each has its own --concurrency.",
)
@click.option("--max-tasks", type=int, metavar="N", help="Replace a worker process after N tasks.")
@click.option("--max-memory", type=float, metavar="MB", help="Replace one that takes more memory.")
@click.option(
    "--isolate", is_flag=True, help="Run each task in a child process, which can be killed."
)
@click.option("--prefetch", type=int, metavar="N", help="Tasks to lease beyond the running ones.")
@click.option("--burst", is_flag=True, help="Stop when the queues are empty.")
@click.option("--name", metavar="NAME", help="Name of the worker: host:pid.")
@click.option(
    "--shutdown-timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    help="How long a stopped worker waits for running tasks: 30s.",
)
@click.option(
    "--child-start-timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    help="How long a process of --isolate may take to load the app: 30s.",
)
@click.option("--lease-seconds", **TIME, help="How long a lease lasts without a heartbeat.")
@click.option(
    "--sync", is_flag=True, help="Sync queues and schedules first, as `headrace sync` does."
)
@click.option("--prune", is_flag=True, help="With --sync: remove undeclared schedules.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of the log on stderr; default: the logging of the app's module, or text.",
)
@click.option(
    "--prometheus",
    type=params.listening,
    metavar="[HOST:]PORT",
    help="Serve metrics on this port, on this machine only unless HOST is given.",
)
@click.option(
    "--outbox",
    metavar="URL",
    help="Also relay the outbox in this database; - is HEADRACE_OUTBOX.",
)
@click.option(
    "--app-version",
    "version",
    default="",
    metavar="TEXT",
    help="Version of your program, shown to operators.",
)
@click.pass_obj
def work_command(
    session: CliSession,
    /,
    app: str,
    queues: tuple[str, ...],
    *,
    processes: int | None,
    prometheus: tuple[str, int] | None,
    outbox: str | None,
    **given: Any,
) -> int:
    """Start a worker of an app, until Ctrl-C or SIGTERM.

    MODULE is imported with this folder on the path.  Its app is the variable `app`, its only App,
    or that of its module `app` or `tasks`.  A stopped worker leases no tasks, lets running
    tasks end, and releases the others without using an attempt; a second Ctrl-C ends it
    at once.
    """
    if given["prune"] and not given["sync"]:
        raise click.UsageError("--prune needs --sync")
    given["queues"] = _queues(queues, strict=given["strict"])
    if processes or given["max_tasks"] or given["max_memory"]:
        supervisor = Supervisor(processes or 1)
        number = supervisor.run()
        if not number:
            return supervisor.exit_code
        if processes:
            given["name"] = given["name"] and f"{given['name']}-{number}"
        if number > 1:
            prometheus = prometheus and (prometheus[0], prometheus[1] + number - 1)
            outbox = None
    return _work(session, app, prometheus=prometheus, outbox=outbox, **given)


def _work(
    session: CliSession,
    app: str,
    *,
    burst: bool,
    prometheus: tuple[str, int] | None,
    outbox: str | None,
    **options: Any,
) -> int:
    """Run a worker in this process, and return its exit code."""
    from headrace.client.worker import logs  # noqa: PLC0415 (for --help, not needed)
    from headrace.client.worker.worker import Worker  # noqa: PLC0415 (an extra)

    named = bool(session.url or session.key or session.key_file)
    # Tasks that enqueue others, and child processes, find the service where the worker does,
    # whatever folder they change to.
    where = {"HEADRACE_URL": session.address(), "HEADRACE_KEY": session.secret}
    os.environ |= {name: value for name, value in where.items() if value}
    garbage.collect_rarely()
    path, found = load_app(app)
    if options["log_format"] is None and not logs.is_configured():
        options["log_format"] = "text"
    client = session.connect(codec=found.codec) if named else session.given_client
    observers = _observers(prometheus)
    try:
        worker = Worker(found, client=client, app_path=path, observers=observers, **options)
    except InvalidRequest as error:
        if any(one.field in ("url", "key") for one in error.errors):
            session.connect()  # says how to name them
        raise
    garbage.freeze_loaded()
    with (
        _metrics(prometheus, client or found.client, list(worker.settings.queues)),
        relaying(session, outbox, found, client, burst=burst),
    ):
        worker.run(burst=burst)
    if worker.recycled:
        return RECYCLE
    return Exit.UNAVAILABLE if worker.unreported_tasks else Exit.DONE


def _observers(served: tuple[str, int] | None) -> "list[Observer]":
    """Return what counts tasks, if metrics are *served*."""
    if served is None:
        return []
    need_packages("--prometheus needs", ["prometheus_client"], "'headrace[prometheus]'")
    from headrace import PrometheusMetrics  # noqa: PLC0415 (an extra)

    return [PrometheusMetrics()]


@contextmanager
def _metrics(
    served: tuple[str, int] | None, client: "Client", queues: Sequence[str]
) -> Iterator[None]:
    """Serve the metrics of this process and of *queues* in the block, if an address is given."""
    if served is None:
        yield
        return
    from prometheus_client import REGISTRY, start_http_server  # noqa: PLC0415 (an extra)

    from headrace.client.worker.telemetry.prometheus import (  # noqa: PLC0415 (an extra)
        QueueMetrics,
        queues_of,
    )

    REGISTRY.register(QueueMetrics(lambda: queues_of(client, queues)))
    host, port = served
    server, thread = start_http_server(port, host)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def load_app(name: str) -> "tuple[str, App]":
    """Return the path ``module:variable`` and the app that *name* means, as `shop`.

    This folder is on the path.  Raises Failed that says what is missing, or what a module raises
    and where.
    """
    from headrace.client.app.discovery import AppNotFound, find_app  # noqa: PLC0415 (for two)

    module_name = name.partition(":")[0]
    if not module_name:
        raise Failed(f"{name!r} names no app: say MODULE or MODULE:APP, as shop", Exit.USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return find_app(name)
    except AppNotFound as error:
        raise Failed(str(error), Exit.USAGE) from error
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise Failed(f"{module_name} needs the module {missing}, which is not here") from error
        raise Failed(
            f"there is no module {missing} in {here}, and none of this name is installed",
            Exit.USAGE,
        ) from error
    except HeadraceError:
        raise
    except (Exception, SystemExit) as error:  # of the module's own code
        ends = isinstance(error, SystemExit)
        what = "ended the program while it was imported" if ends else "cannot be imported"
        raise Failed(f"{module_name} {what}: {_error_and_line(error)}") from error


def _error_and_line(error: BaseException) -> str:
    """Return the text of *error* and the last line that ran outside of Headrace."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SyntaxError):  # its text has the line
        return text
    frames = traceback.extract_tb(error.__traceback__)
    headrace = str(Path(garbage.__file__).parent)
    outside = [one for one in frames if not one.filename.startswith(headrace)]
    last = (outside or frames)[-1]
    return f"{text} ({last.filename}, line {last.lineno})"


@click.group("worker", cls=CliGroup, example="headrace worker list")
def worker_command() -> None:
    """List workers, and quiet or stop a worker."""


@worker_command.command("list", example="headrace worker list --query 'queue:mail state:late'")
@query_option("queue:mail state:late")
@click.pass_obj
def list_workers(session: CliSession, query: str | None) -> None:
    """List the workers that sent a heartbeat in the last five minutes.

    Heartbeats come every 30 seconds; a worker without one for 75 seconds is marked as silent.
    """
    workers = list(session.client.list_workers(query=query))
    now = session.client.health().now
    columns: dict[str, Column] = {
        "Worker": "name",
        "Queues": "queues",
        "Running": lambda one: len(one.running or ()),
        "Concurrency": "concurrency",
        "Version": "version",
        "Since": "started_at",
        "Seen": lambda one: _seen(one, now),
        "Asked to": "command",
    }
    answer(session, workers, lambda: table(columns, workers))


def _seen(one: WorkerSeen, now: datetime) -> str:
    """Return when *one* was last seen, by the clock of the service."""
    silent = (now - one.seen_at).total_seconds()
    return f"silent for {span(silent)}" if silent > SILENT_SECONDS else when(one.seen_at)


@worker_command.command("quiet", example="headrace worker quiet web-1:4711")
@click.argument("name")
@click.pass_obj
def quiet(session: CliSession, name: str) -> None:
    """Tell a worker to lease no new tasks, with its next heartbeat."""
    session.client.quiet_worker(name)
    _show_command(session, name, "quiet", "lease no new tasks")


@worker_command.command("stop", example="headrace worker stop web-1:4711")
@click.argument("name")
@click.pass_obj
def stop(session: CliSession, name: str) -> None:
    """Tell a worker to finish its tasks and stop."""
    session.client.stop_worker(name)
    _show_command(session, name, "stop", "finish and stop")


def _show_command(session: CliSession, name: str, command: str, text: str) -> None:
    done(session, f"Worker {name} will {text}.", {"worker": name, "command": command})
