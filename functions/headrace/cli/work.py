"""`headrace work`: the worker of an app."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headrace.cli import params
from headrace.cli.apps import load_app
from headrace.cli.commands import CliCommand, queue_names, split
from headrace.cli.session import CliSession, Failed
from headrace.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.client.worker.observing import Observer


def _weights(texts: tuple[str, ...]) -> dict[str, float] | None:
    """Read `mail=3,news`: names with weights, 1 where none is said."""
    found: dict[str, float] = {}
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
    return found or None


@click.command(
    "work",
    cls=CliCommand,
    example="headrace work shop.tasks:app\n"
    "headrace work shop.tasks:app --queues mail=3,news --concurrency 20 --log-format json",
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--queues",
    multiple=True,
    metavar="QUEUE[=N],…",
    shell_complete=queue_names,
    help="Which, and how often each is asked; else all that the app declares.",
)
@click.option("--strict", is_flag=True, help="A queue only while those before it are empty.")
@click.option(
    "--concurrency",
    "-c",
    type=int,
    metavar="N",
    help="Tasks at a time; 10, or with --isolate one for each processor.",
)
@click.option("--isolate", is_flag=True, help="Each task in a process, which can be killed.")
@click.option("--prefetch", type=int, metavar="N", help="Tasks held beyond those that run.")
@click.option("--burst", is_flag=True, help="End when the queues have nothing to give.")
@click.option("--name", metavar="NAME", help="How operators see it; else host:process.")
@click.option(
    "--shutdown-timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    help="What running tasks may take to end when it is stopped: 30s.",
)
@click.option("--keepalive", type=params.seconds, metavar="TIME", help="How long leases last.")
@click.option("--group-lease", is_flag=True, help="One lease over all tasks, of 60s.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Of the log, on stderr: text.",
)
@click.option(
    "--prometheus",
    type=params.listening,
    metavar="[HOST:]PORT",
    help="Serve metrics there, to this machine unless HOST says else; needs headrace[prometheus].",
)
@click.option("--app-version", default="", metavar="TEXT", help="Of your program, for operators.")
@click.pass_obj
def work_command(
    session: CliSession,
    /,
    app: str,
    queues: tuple[str, ...],
    *,
    burst: bool,
    prometheus: tuple[str, int] | None,
    app_version: str,
    **given: Any,  # noqa: ANN401 (the worker's own settings)
) -> None:
    """Run an app's worker, until Ctrl-C or SIGTERM.

    MODULE:APP is as shop.tasks:app, with this folder on the path.  Told to stop, it takes no more
    tasks, lets those that run end, and gives the others back with no attempt used; a second Ctrl-C
    ends it at once.
    """
    from headrace.client.worker.worker import Worker  # noqa: PLC0415 (for --help, not needed)

    weights = _weights(queues)
    named = bool(session.url or session.key or session.key_file)
    if named:
        # Tasks that enqueue others, and child processes, find the service where the worker does.
        where = {"HEADRACE_URL": session.address(), "HEADRACE_KEY": session.secret}
        os.environ |= {name: value for name, value in where.items() if value}
    found = load_app(app)
    with _metrics(prometheus) as observers:
        try:
            worker = Worker(
                found,
                client=session.connect(codec=found.codec) if named else session.given_client,
                queues=weights,
                app_path=app,
                version=app_version,
                observers=observers,
                **given,
            )
        except InvalidRequest as error:
            if any(one.field in ("url", "key") for one in error.errors):
                session.connect()  # says how to name them
            raise
        worker.run(burst=burst)


@contextmanager
def _metrics(where: tuple[str, int] | None) -> "Iterator[Sequence[Observer]]":
    """Serve Prometheus metrics while this lasts, if host and port are given."""
    if where is None:
        yield ()
        return
    try:
        from prometheus_client import start_http_server  # noqa: PLC0415 (an extra)

        from headrace.client.worker.telemetry.prometheus import (  # noqa: PLC0415 (likewise)
            PrometheusMetrics,
        )
    except ModuleNotFoundError as error:
        raise Failed("--prometheus needs a package: pip install 'headrace[prometheus]'") from error
    host, port = where
    server, thread = start_http_server(port, host)
    try:
        yield [PrometheusMetrics()]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
