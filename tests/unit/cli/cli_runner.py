"""The command in this process, against a service in memory."""

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from headrace.cli.main import main
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.testing import MemoryService


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The NDJSON on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """The first line of stderr."""
        return (self.err.splitlines() or [""])[0]


@dataclass
class Cli:
    """Runs `headrace …` with a client of its service."""

    service: MemoryService
    client: Client | None = None
    somebody: bool = False  # at a terminal, to be asked

    def __call__(self, *args: str, input: str | bytes | None = None) -> Ran:  # noqa: A002 (click's own)
        """Run one command."""
        client = self.client or self.service.client
        session = CliSession(
            given_client=client,
            now=self.service.clock,
            env={},
            at_terminal=lambda: self.somebody,
        )
        return invoke(*args, session=session, input=input)

    def as_role(self, role: str, *queues: str) -> "Cli":
        """Return the same with a key of *role*."""
        key = self.service.client.create_key(role, role, queues or ("*",))
        return Cli(self.service, self.service.connect(key.secret))


def invoke(*args: str, session: CliSession, input: str | bytes | None = None) -> Ran:  # noqa: A002
    """Run one command with a session of one's own."""
    result = CliRunner().invoke(main, list(args), obj=session, input=input, prog_name="headrace")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
