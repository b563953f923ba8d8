"""Engines and services to measure, set up as the local service sets up its own."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.local.engine import Engine, running_engine
from headrace.local.environment import applied, dynamodb_client, function_environment
from headrace.local.folder import temporary_folder
from headrace.local.launch import Launched, launched
from headrace.local.stream import add_index
from headrace.local.tables import TableNames, create_tables, load_template
from tests.bench.targets import InProcess, OverHttp


@contextlib.contextmanager
def bare_engine(folder: Path) -> Iterator[Engine]:
    """Run an engine in *folder* with the tables of template.yaml and the stream's index."""
    with running_engine(folder) as engine:
        add_index(engine.database)
        with applied(_environment(engine)):
            create_tables(dynamodb_client(engine.url), load_template(), TableNames())
        yield engine


@contextlib.contextmanager
def folder_on_disk(parent: Path) -> Iterator[Path]:
    """Hold a new folder inside *parent*, and remove it at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True)
class EngineWorld:
    """One engine in memory, and the two ways to it: through our use cases, and over HTTP."""

    engine: Engine
    service: Launched
    in_process: InProcess
    over_http: OverHttp

    @property
    def targets(self) -> tuple[InProcess, OverHttp]:
        """Both ways."""
        return self.in_process, self.over_http


@contextlib.contextmanager
def world(queue: str) -> Iterator[EngineWorld]:
    """Run an engine in memory and a service on it; both ways see the same new queue."""
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(bare_engine(stack.enter_context(temporary_folder())))
        variables = _environment(engine)
        with applied(variables):
            in_process = InProcess(queue)
        set_variables = {name: value for name, value in variables.items() if value is not None}
        service = stack.enter_context(launched(environment=set_variables))
        over_http = stack.enter_context(OverHttp(service.url, service.admin_key, queue))
        over_http.create_queue()
        yield EngineWorld(engine, service, in_process, over_http)


def _environment(engine: Engine) -> dict[str, str | None]:
    return {
        **function_environment(
            url=engine.url, names=TableNames(), admin_key="bench-of-this-machine"
        ),
        "HEADRACE_SENDER": "together",
    }
