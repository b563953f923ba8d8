"""Services to measure, set up as users and tests set up their own."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.targets import InProcess, OverHttp, UseCaseCalls
from headrace.domain.queue_settings import QueueSettings
from headrace.local.environment import applied, dynamodb_client, function_environment
from headrace.local.tables import TableNames, create_tables, table_requests
from headrace.runtime.wiring import Settings, build, dynamo_store
from infra.launch import launched
from tests.engine import dynamodb_local

_ADMIN_KEY: Final = "bench-of-this-machine"


@contextlib.contextmanager
def folder_on_disk(parent: Path) -> Iterator[Path]:
    """Hold a new folder inside *parent*, and remove it at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True)
class BothWays:
    """One file in memory, and the two ways to it: in this process, and over HTTP."""

    file: Path
    in_process: InProcess
    over_http: OverHttp

    @property
    def targets(self) -> tuple[InProcess, OverHttp]:
        """Both ways."""
        return self.in_process, self.over_http


@contextlib.contextmanager
def both_ways(queue: str) -> Iterator[BothWays]:
    """Run a service on a file in memory; both ways see the same new queue."""
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(launched())
        over_http = stack.enter_context(OverHttp(service.url, service.admin_key, queue))
        over_http.create_queue()
        in_process = stack.enter_context(InProcess(service.file_url, queue))
        yield BothWays(Path(service.file_url.removeprefix("file:")), in_process, over_http)


@contextlib.contextmanager
def on_dynamodb_local(queue: str) -> Iterator[UseCaseCalls]:
    """Run DynamoDB Local, with a new queue in it.

    Changes go out one by one: for those it tells the units.  Raises EngineMissing.
    """
    names = TableNames()
    with dynamodb_local() as engine:
        variables = function_environment(url=engine.url, names=names, admin_key=_ADMIN_KEY)
        with applied(variables):
            create_tables(dynamodb_client(engine.url), table_requests(), names)
            settings = replace(Settings.from_env(), sender="single")
            use = build(settings, dynamo_store(settings))
            use.queues.create(queue, QueueSettings())
            yield UseCaseCalls("DynamoDB Local", use, queue)
