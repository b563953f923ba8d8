"""Where a service is: a file, an HTTP service, or a deployment's tables; one URL says which."""

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from headrace.domain.errors import InvalidRequest

_wrong: Final = InvalidRequest.of

_STACK: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z0-9]+)+-\d")


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A service that answers HTTP at ``url``; ``local`` in this machine or its network."""

    url: str
    host: str
    local: bool

    @property
    def this_machine(self) -> bool:
        """Whether what is sent there never leaves this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")


@dataclass(frozen=True, slots=True)
class FileAddress:
    """An embedded store: the absolute ``path`` of its file."""

    path: str


@dataclass(frozen=True, slots=True)
class TablesAddress:
    """The tables of the deployment ``stack`` in ``region``, used by the caller's IAM rights."""

    region: str
    stack: str


Address: TypeAlias = HttpAddress | FileAddress | TablesAddress


def read_address(url: str) -> Address:
    """Read a HEADRACE_URL.  Raises InvalidRequest naming ``url``."""
    scheme = url.partition(":")[0].lower()
    if scheme == "file":
        return _file(url)
    if scheme == "dynamodb":
        return _tables(url)
    if not re.fullmatch(r"https?://[^\s?#]+", url):
        raise _wrong(
            "url",
            f"must be file:PATH, an http or https address, or dynamodb://REGION/STACK, not {url!r}",
        )
    if "@" in url:
        raise _wrong("url", "must hold no user and password; the key goes into key=…")
    host = _host(url)
    return HttpAddress(url, host, _local(host))


def absolute_url(url: str, folder: str | Path) -> str:
    """Return *url* with the path of a file made absolute from *folder*; others as they are.

    A URL that is wrong stays as it is: `read_address` says what is wrong with it.
    """
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "file" or rest.startswith("/") or rest != rest.strip() or not rest:
        return url
    if re.match(r"[A-Za-z]:|%2F", rest, re.IGNORECASE):  # C:/tasks.db on Windows, or an absolute
        return url
    return f"file:{quote(Path(folder).as_posix())}/{rest}"


def _file(url: str) -> FileAddress:
    """Take ``file:relative``, ``file:/absolute`` and ``file:///absolute``, percent-decoded."""
    rest = url.partition(":")[2]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise _wrong("url", f"must be a file of this machine, not of {host!r}: file:///PATH")
        rest = slash + path
    if rest != rest.strip() or _CONTROL.search(rest):
        raise _wrong(
            "url",
            f"must have no blanks at its ends and no control characters, as {url!r} has: write them"
            " as %20 or %0D if they are meant",
        )
    if "?" in rest or "#" in rest:
        raise _wrong("url", f"must be a path alone, not {url!r}; write ? as %3F and # as %23")
    try:
        name = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        raise _wrong("url", f"must be UTF-8, percent-encoded, and {url!r} is not") from None
    if re.match(r"/[A-Za-z]:", name):  # of Windows, as in file:///C:/tasks.db
        name = name[1:]
    _check_name(name, url)
    whole = Path(name).absolute()
    # os.path's: in a folder that may not be looked into, Path's raises in some Pythons.
    if not os.path.isdir(whole.parent):  # noqa: PTH112
        raise _wrong("url", f"names a file in {whole.parent}, which is no folder: make it first")
    if os.path.isdir(whole):  # noqa: PTH112
        raise _wrong("url", f"names {whole}, which is a folder: name a file in it")
    return FileAddress(str(whole))


def _check_name(name: str, url: str) -> None:
    if not name or name.endswith(("/", "\\")) or "\0" in name:
        raise _wrong("url", f"must name a file, as file:headrace.db, and {url!r} does not")
    if name == ":memory:":
        raise _wrong(
            "url",
            f"must name a file, and {url!r} means none: a service in memory, for tests, is"
            " headrace.testing.MemoryService",
        )


def _tables(url: str) -> TablesAddress:
    parts = re.fullmatch(r"dynamodb://([^/]+)/([^/]+)/?", url, re.IGNORECASE)
    if parts is None:
        raise _wrong("url", f"must be dynamodb://REGION/STACK, not {url!r}")
    region, stack = parts.groups()
    if not _REGION.fullmatch(region):
        raise _wrong("url", f"must name a region of AWS, as us-east-1, not {region!r}")
    if not _STACK.fullmatch(stack):
        raise _wrong(
            "url", f"must name a stack: letters, digits and hyphens, up to 128, not {stack!r}"
        )
    return TablesAddress(region, stack)


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host and host.isascii():
            host.encode("idna")  # as resolvers are asked, which only then would find it wrong
    except ValueError as error:  # UnicodeError is one
        raise _wrong("url", f"cannot be {url!r}: {error}") from None
    if not host:
        raise _wrong("url", f"must name a host, and {url!r} does not")
    return host


def _local(host: str) -> bool:
    """Whether *host* is this machine, or a name that only a private network knows."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".localhost", ".test"))
