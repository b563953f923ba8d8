"""Push: the target that the service sends a queue's tasks to, and what may be one.

A target is an address on the web or a Lambda function.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.retry import Seconds
from headrace.domain.settings import setting

_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' NAT
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, the metadata services among them
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_V6_GLOBAL: Final = IPv6Network("2000::/3")  # every assigned network
_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo and ORCHID among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address in disguise
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_V4_BITS: Final = 0xFFFF_FFFF


def address_fault(text: str) -> str | None:
    """Return why nothing may be sent to the address *text*; None if it may.

    *text* is an IPv4 or IPv6 address without brackets.  Raises ValueError for anything else.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return f"{text} is of one network only"
        inner = _inner(address)
        if inner is None:
            return None if _v6_global(address) else f"{text} is not a global address"
        address = inner
    for network in _V4:
        if address in network:
            return f"{text} is not a global address"
    return None


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets for *address* end up at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & _V4_BITS)
    return None


def _v6_global(address: IPv6Address) -> bool:
    return address in _V6_GLOBAL and not any(address in network for network in _V6)


MASK: Final = "********"
"""The value of each header as roles other than admin see it."""

REFUSED_TYPE: Final = "TargetRefused"
"""The error's type if the service may not send to the target."""

SEAT_THREADS: Final = 100
"""The most parallel requests of one dispatcher; for more there are more dispatchers."""

_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80
_LAST_PORT: Final = 65_535
_VISIBLE: Final = re.compile(r"[!-~]+", re.ASCII)
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)
_FUNCTION: Final = re.compile(
    r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[A-Za-z0-9_-]{1,64}"
    r"(:(\$LATEST|[A-Za-z0-9_-]{1,128}))?",
    re.ASCII,
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE: Final = re.compile(r"[!-~]([\t -~]*[!-~])?|", re.ASCII)
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "headrace-attempt",
        "headrace-queue",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the tasks of a queue are sent: ``url``, or the Lambda ``function`` of an ARN.

    ``timeout_in_seconds`` is the time for one request, ``max_concurrency`` how many are under way
    at once; ``headers`` are sent with each.
    """

    url: str | None = None
    function: str | None = None
    timeout_in_seconds: Annotated[
        Seconds,
        setting(
            "Timeout",
            "For one request, the answer included.",
            (1, 300),
            short="target_timeout",
        ),
    ] = 30
    max_concurrency: Annotated[
        int,
        setting(
            "Concurrency",
            "Requests at the same time.",
            (1, 500),
            short="target_concurrency",
        ),
    ] = 10
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The address, or the function's ARN."""
        return self.url or self.function or ""

    @property
    def seats(self) -> int:
        """How many dispatchers there may be at once."""
        return -(-self.max_concurrency // SEAT_THREADS)

    def threads(self, seat: int) -> int:
        """Return how many requests the dispatcher in *seat* (from 0) may have under way."""
        share, rest = divmod(self.max_concurrency, self.seats)
        return share + (seat < rest)

    def mask_headers(self) -> "Target":
        """Return the target with masked header values, for roles that may not read them."""
        return replace(self, headers=dict.fromkeys(self.headers, MASK))

    def unmask_headers(self, before: "Target | None") -> "Target":
        """Return the target with its masked values as they were *before*.

        Raises InvalidRequest for a masked header that did not exist.
        """
        known = {} if before is None else {name.lower(): v for name, v in before.headers.items()}
        headers = dict(self.headers)
        for name, value in headers.items():
            if value != MASK:
                continue
            if name.lower() not in known:
                raise InvalidRequest.of(f"target.headers.{name}", "is masked: give its value")
            headers[name] = known[name.lower()]
        return replace(self, headers=headers)


@dataclass(frozen=True, slots=True)
class PushHosts:
    """Hosts that may be private, on http and on any port: HEADRACE_PUSH_HOSTS.

    Each entry is a host, or a host and the one port that is meant.
    """

    entries: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the hosts of a list with commas.  Raises ValueError naming what is wrong."""
        entries = set()
        for part in (part.strip() for part in text.split(",")):
            if not part:
                continue
            parsed = urlsplit(f"//{part}")
            try:
                host, port = parsed.hostname, parsed.port
            except ValueError:
                host = port = None
            if not host or parsed.netloc != part or "@" in part or _host_fault(host):
                message = f"must be hosts with commas, each as host or host:port, not {part!r}"
                raise ValueError(message)
            entries.add((_plain(host), port))
        return cls(frozenset(entries))

    def __contains__(self, place: "tuple[str, int]") -> bool:
        host, port = _plain(place[0]), place[1]
        return (host, None) in self.entries or (host, port) in self.entries


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of an address.  The checked parts are used to connect.

    ``host`` is a name in lower case or an address without brackets, ``path`` with its query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The host as requests name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = _HTTPS_PORT if self.scheme == "https" else _HTTP_PORT
        return host if self.port == usual else f"{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return *url* taken apart.  Raises ValueError saying what it must be."""
        fault = limits.text_fault(url, limits.TARGET_URL_BYTES, 1)
        if fault:
            raise ValueError(fault)
        if not _VISIBLE.fullmatch(url) or "\\" in url:
            raise ValueError("must have visible ASCII characters only, the others percent-encoded")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"must be an address: {error}") from error
        if parts.scheme not in ("http", "https"):
            raise ValueError("must begin with https://")
        if "@" in parts.netloc:
            raise ValueError("must have no user and password; send them as a header")
        if parts.fragment or url.endswith("#"):
            raise ValueError("must have no fragment")
        host = parts.hostname or ""
        fault = _host_fault(host)
        if fault:
            raise ValueError(fault)
        if port is None:
            port = _HTTPS_PORT if parts.scheme == "https" else _HTTP_PORT
        if not 1 <= port <= _LAST_PORT:
            raise ValueError(f"must have a port from 1 to {_LAST_PORT}")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, _plain(host), port, path)


@dataclass(frozen=True, slots=True)
class PushRules:
    """What a deployment allows as targets: its own hosts, and functions by patterns of ARNs."""

    hosts: PushHosts = field(default_factory=PushHosts)
    functions: tuple[str, ...] = ()

    def check(self, target: Target) -> None:
        """Raise InvalidRequest with every fault of *target*."""
        faults = [
            FieldError(where, f"{where} {fault}")
            for where, fault in target_faults(target, hosts=self.hosts, functions=self.functions)
        ]
        if faults:
            raise InvalidRequest("; ".join(one.message for one in faults), errors=faults)


def url_fault(url: str, hosts: PushHosts) -> str | None:
    """Return the fault of *url* as a target, or None.

    Whether a name leads to an address that may be asked is only known when it is.
    """
    try:
        to = Destination.parse(url)
    except ValueError as error:
        return str(error)
    if (to.host, to.port) in hosts:
        return None
    if to.scheme != "https":
        return "must begin with https://, unless the host is one of HEADRACE_PUSH_HOSTS"
    if to.port != _HTTPS_PORT:
        return "must be on port 443, unless the host is one of HEADRACE_PUSH_HOSTS"
    if _is_address(to.host):
        fault = address_fault(to.host)
        return f"must not lead into a private network: {fault}" if fault else None
    return None


def function_fault(arn: str, allowed: Sequence[str]) -> str | None:
    """Return the fault of *arn* as a target, or None; *allowed* may have * for any text."""
    if not _FUNCTION.fullmatch(arn):
        return "must be the ARN of a Lambda function"
    for pattern in allowed:
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), arn):
            return None
    return "must be one of HEADRACE_PUSH_FUNCTIONS, which it is not"


def headers_faults(headers: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    """Yield what is wrong with *headers*: the name, or None for all of them, and the message."""
    if len(headers) > limits.TARGET_HEADERS:
        yield None, f"must be at most {limits.TARGET_HEADERS}; there are {len(headers)}"
    size = sum(limits.utf8_bytes(name) + limits.utf8_bytes(headers[name]) for name in headers)
    if size > limits.TARGET_HEADER_BYTES:
        yield None, f"must be at most {limits.TARGET_HEADER_BYTES} bytes together; they are {size}"
    seen = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            yield name, "must be the name of a header"
        elif lower in _OURS or lower.startswith("webhook-"):
            yield name, "is set by the service"
        elif lower in seen:
            yield name, "must be there once"
        elif not _VALUE.fullmatch(value):
            yield name, "must have visible ASCII characters and inner blanks only"
        seen.add(lower)


def target_faults(
    target: Target, *, hosts: PushHosts, functions: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with *target* where a deployment allows *hosts* and *functions*."""
    if (target.url is None) == (target.function is None):
        yield "target", "must have either url or lambda"
    if target.url is not None and (fault := url_fault(target.url, hosts)):
        yield "target.url", fault
    if target.function is not None and (fault := function_fault(target.function, functions)):
        yield "target.lambda", fault
    if target.function is not None and target.headers:
        yield "target.headers", "must be empty: a Lambda function is sent none"
    for name, fault in headers_faults(target.headers):  # with what was masked, which counts too
        yield "target.headers" if name is None else f"target.headers.{name}", fault


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host_fault(host: str) -> str | None:
    """Return the fault of *host*, a name or an address without brackets, or None."""
    if _is_address(host):
        return None
    if not _HOST.fullmatch(host):
        return "must have a host, its name in ASCII"
    if _NUMBER.fullmatch(_plain(host).rpartition(".")[2]):  # 127.1, 0x7f000001: addresses to some
        return "must have a name as its host, or an address in full"
    return None
