"""One run of `headrace`: its options, its client, and its exit code."""

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
"""Retries of a call; few, because a person waits."""

_STDIN: Final = "-"
_NO_ANSWER: Final = re.compile(r"[A-Z]+ \S+ got no answer: (?:\[Errno -?\d+\] )?(.*)", re.DOTALL)


class Exit(IntEnum):
    """The exit code of a command, as docs/reference/cli.md documents it."""

    DONE = 0  #: everything is done, and nothing is wrong
    FAILED = 1  #: it failed, or was done only in part, or `doctor` has advice
    USAGE = 2  #: the command line or a value is wrong, or names no service or no key
    NOT_FOUND = 3  #: there is no such queue, task, schedule, key, worker or row
    NOT_ALLOWED = 4  #: the key is unknown, or may not do this
    CONFLICT = 5  #: it exists, was changed by another program, is in flight, or has another lease
    UNAVAILABLE = 6  #: the service cannot be reached, or cannot answer now
    DIFFERENT = 7  #: `sync --dry-run` found something to do
    TIME_OVER = 8  #: the time of `task wait` is over
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
    """Return the exit code for *error*."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


class Failed(Exception):
    """A command failed; the text says why, *code* is its exit code."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def stdin_is_terminal() -> bool:
    """Whether stdin is a terminal, so that the command can ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def replace_closed_output() -> None:
    """Discard output to a closed stdout or stderr (`>&-`), in place of which Python has None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open until the end)
            setattr(sys, name, nowhere)


def need_packages(what: str, names: Sequence[str], install: str) -> None:
    """Raise Failed, which names what to *install*, if a package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise Failed(
            f"{what} Python packages that are not installed ({', '.join(missing)}): "
            f"pip install {install}"
        )


@dataclass
class CliSession:
    """The options that every command takes, and the client that they name."""

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
        """The client.  Raises Failed if no service is named."""
        return self.given_client or self.connect(retries=self.retries)

    def address(self) -> str | None:
        """Return the address of --url or the environment; a file with its absolute path."""
        url = self.url or self.env.get("HEADRACE_URL")
        if not url:
            return url
        from headrace.client.address import absolute_url  # noqa: PLC0415 (not for --help)
        from headrace.client.settings import working_folder  # noqa: PLC0415 (not for --help)

        return absolute_url(url, working_folder())

    def named_by(self) -> str:
        """Return which option or variable names the service."""
        return "see --url" if self.url else "see HEADRACE_URL"

    def key_named_by(self) -> str:
        """Return which option or variable names the key or the credentials of AWS."""
        if (self.address() or "").lower().startswith("dynamodb:"):
            return "see AWS_PROFILE, or the role of this machine"
        return "see --key-file" if self.key_file else "see HEADRACE_KEY"

    def explain(self, error: HeadraceError) -> str:
        """Return the detail of *error*; if nothing answered, with the address."""
        lost = _NO_ANSWER.fullmatch(error.detail)
        where = self.address()
        if lost is None or not where:
            return error.detail
        return f"{where} gave no answer ({lost[1][:1].lower()}{lost[1][1:]})"

    def connect(self, *, codec: "Codec | None" = None, retries: int | None = None) -> "Client":
        """Return a new client.  Raises Failed if no service or no key is named."""
        from headrace.client.address import (  # noqa: PLC0415 (not for --help)
            HttpAddress,
            read_address,
        )
        from headrace.client.client import Client  # noqa: PLC0415 (not for --help)
        from headrace.client.codec import PLAIN  # noqa: PLC0415 (not for --help)

        url, key = self.address(), self.secret
        if not url:
            raise Failed(
                "no service is named: set HEADRACE_URL and HEADRACE_KEY, or give --url; "
                "`headrace run` starts a service here and prints both",
                Exit.USAGE,
            )
        if not key and isinstance(read_address(url), HttpAddress):
            raise Failed(
                "there is no key: set HEADRACE_KEY, or give --key-file; "
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
        """Close the connections that this session opened."""
        if "client" in self.__dict__ and self.given_client is None:
            self.client.close()

    @cached_property
    def secret(self) -> str | None:
        """The key from --key, the first line of --key-file, or the environment."""
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
        """Write *text* on stderr, unless --quiet was given."""
        if not self.quiet:
            click.echo(escape_unseen(text), err=True)

    def ask(self, question: str, *, yes: bool, name: str | None = None) -> None:
        """Ask whether to continue; if *name* is given, it must be typed.

        Raises Failed if the answer is no, or if stdin is no terminal and *yes* is false.
        """
        if yes:
            return
        if not self.at_terminal():
            raise Failed(f"{question} Give --yes to do it without a question.", Exit.USAGE)
        if name is None:
            agreed = click.confirm(question, default=False, err=True)
        else:
            prompt_text = f"{question} Type its name to continue"
            typed = click.prompt(prompt_text, default="", show_default=False, err=True)
            agreed = typed == name
        if not agreed:
            raise Failed("nothing was done")
