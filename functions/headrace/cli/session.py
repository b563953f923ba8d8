"""What one run of `headrace` knows: where the service is, how to answer, and how it ends."""

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headrace.cli.params import open_stdin
from headrace.client.settings import RETRIES as MANY
from headrace.client.settings import utc_now
from headrace.domain.errors import (
    Conflict,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotEnqueued,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.texts import escape_unseen

if TYPE_CHECKING:
    import httpx2 as httpx

    from headrace.client.client import Client
    from headrace.client.codec import Codec

RETRIES: Final = 2
"""Tries after the first: a person waits, so errors are shown soon."""

_STDIN: Final = "-"
_NO_ANSWER: Final = re.compile(r"[A-Z]+ \S+ got no answer: (?:\[Errno -?\d+\] )?(.*)", re.DOTALL)


class Exit(IntEnum):
    """The exit code of a command, as in docs/guide/cli.md."""

    DONE = 0  #: all is done, and nothing is wrong
    FAILED = 1  #: it failed, or was done in part only, or `doctor` has advice
    USAGE = 2  #: the command line or a value makes no sense, or names no service or no key
    NOT_FOUND = 3  #: there is no such queue, task, schedule, key, worker or row
    NOT_ALLOWED = 4  #: the key is unknown, or may not do this
    CONFLICT = 5  #: it exists already, was changed meanwhile, is in flight, or under another lease
    UNAVAILABLE = 6  #: the service cannot be reached, or cannot answer now
    DIFFERENT = 7  #: `sync --dry-run` found something to do
    TIME_OVER = 8  #: `task wait` has waited in vain
    INTERRUPTED = 130  #: Ctrl-C


_BY_ERROR: Final[tuple[tuple[type[HeadraceError], Exit], ...]] = (
    (NotEnqueued, Exit.FAILED),
    (InvalidRequest, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Unauthenticated, Exit.NOT_ALLOWED),
    (Forbidden, Exit.NOT_ALLOWED),
    (Conflict, Exit.CONFLICT),
    (RateLimited, Exit.UNAVAILABLE),
    (Unavailable, Exit.UNAVAILABLE),
)


def exit_of(error: HeadraceError) -> Exit:
    """The code with which a command ends that met *error*."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


class Failed(Exception):
    """A command cannot go on; the text says why, *code* is its exit code."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def stdin_is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def replace_closed_output() -> None:
    """Let what goes to a stdout or stderr that was closed before (`>&-`) go nowhere.

    Python has None in their place, which is none of the things that a stream can do.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until the end)
            setattr(sys, name, nowhere)


def need_packages(what: str, names: Sequence[str], install: str) -> None:
    """Raise Failed, saying what to *install*, unless the packages are here that *what* needs."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise Failed(
            f"{what} Python packages that are not here ({', '.join(missing)}): "
            f"pip install {install}"
        )


@dataclass
class CliSession:
    """The options that every command takes, and what comes of them."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    key_file: str | None = None
    timeout: float = 30.0
    json: bool = False
    quiet: bool = False
    debug: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    given_client: "Client | None" = field(default=None, repr=False)
    retries: int = RETRIES
    now: Callable[[], datetime] = utc_now
    at_terminal: Callable[[], bool] = stdin_is_terminal
    sleep: Callable[[float], None] = time.sleep
    transport: "httpx.BaseTransport | None" = field(default=None, repr=False)

    @cached_property
    def client(self) -> "Client":
        """The service, as one client.  Raises Failed when it is not known where that is."""
        return self.given_client or self.connect(retries=self.retries)

    def address(self) -> str | None:
        """Return where the service is: --url, else the environment. A file has its whole path."""
        url = self.url or self.env.get("HEADRACE_URL")
        if not url:
            return url
        from headrace.client.address import absolute_url  # noqa: PLC0415 (`--help` needs none)
        from headrace.client.settings import working_folder  # noqa: PLC0415 (likewise)

        return absolute_url(url, working_folder())

    def named_by(self) -> str:
        """Return where people see, and mend, which service is meant."""
        return "see --url" if self.url else "see HEADRACE_URL"

    def key_named_by(self) -> str:
        """Return where people see, and mend, which key, or credentials of AWS, are meant."""
        if (self.address() or "").lower().startswith("dynamodb:"):
            return "see AWS_PROFILE, or the role of this machine"
        return "see --key-file" if self.key_file else "see HEADRACE_KEY"

    def explain(self, error: HeadraceError) -> str:
        """Return the detail of *error*; where nothing answered, which address that was."""
        lost = _NO_ANSWER.fullmatch(error.detail)
        where = self.address()
        if lost is None or not where:
            return error.detail
        return f"{where} gave no answer ({lost[1][:1].lower()}{lost[1][1:]})"

    def connect(self, *, codec: "Codec | None" = None, retries: int | None = None) -> "Client":
        """Return a new client.  Raises Failed when it is not known where the service is."""
        from headrace.client.address import (  # noqa: PLC0415 (`headrace --help` needs none)
            HttpAddress,
            read_address,
        )
        from headrace.client.client import Client  # noqa: PLC0415 (likewise)
        from headrace.client.codec import PLAIN  # noqa: PLC0415 (likewise)

        url, key = self.address(), self.secret
        if not url:
            raise Failed(
                "no service is named: set HEADRACE_URL and HEADRACE_KEY, or say --url; "
                "`headrace run` starts a service here and prints both",
                Exit.USAGE,
            )
        if not key and isinstance(read_address(url), HttpAddress):
            raise Failed(
                "there is no key: set HEADRACE_KEY, or say --key-file; "
                "`headrace run` prints one for the service it starts",
                Exit.USAGE,
            )
        return Client(
            url,
            key,
            timeout=self.timeout,
            codec=codec or PLAIN,
            retries=MANY if retries is None else retries,
            transport=self.transport,
        )

    def close(self) -> None:
        """Close the connections, if there are any and they are ours."""
        if "client" in self.__dict__ and self.given_client is None:
            self.client.close()

    @cached_property
    def secret(self) -> str | None:
        """The key: of --key, of the first line of --key-file, or of the environment."""
        if self.key:
            return self.key
        if not self.key_file:
            return self.env.get("HEADRACE_KEY")
        try:
            if self.key_file == _STDIN:
                return open_stdin().readline().strip()
            with Path(self.key_file).open(encoding="utf-8") as lines:
                return lines.readline().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise Failed(f"--key-file {self.key_file}: {why}", Exit.USAGE) from error

    def note(self, text: str) -> None:
        """Show a person something that is no data: on stderr, unless --quiet."""
        if not self.quiet:
            click.echo(escape_unseen(text), err=True)

    def ask(self, question: str, *, yes: bool, name: str | None = None) -> None:
        """Ask whether to go on; with *name*, by having that typed.

        Raises Failed when the answer is no, or when there is nobody to ask and --yes was not said.
        """
        if yes:
            return
        if not self.at_terminal():
            raise Failed(f"{question} Say --yes to do it without being asked.", Exit.USAGE)
        if name is None:
            agreed = click.confirm(question, default=False, err=True)
        else:
            prompt_text = f"{question} Type its name to go on"
            typed = click.prompt(prompt_text, default="", show_default=False, err=True)
            agreed = typed == name
        if not agreed:
            raise Failed("nothing was done")
