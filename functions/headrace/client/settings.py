"""What a client takes from where it runs: the service's address, its key, and the time.

Address and key are those of arguments, else those of the environment.
"""

import ipaddress
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from headrace.domain.errors import InvalidRequest

_log: Final = logging.getLogger("headrace.client")

_wrong: Final = InvalidRequest.of

RETRIES: Final = 6  # tries of a call after the first


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Address and key of a service; ``timeout`` is seconds for one try of one call."""

    url: str
    key: str = field(repr=False)
    timeout: float = 30.0

    @classmethod
    def of(
        cls,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        env: Mapping[str, str] = os.environ,
    ) -> "ClientSettings":
        """Take what is given, else ``HEADRACE_URL`` and ``HEADRACE_KEY``.

        Raises InvalidRequest that says which one is missing or wrong.
        """
        found_url = (url or env.get("HEADRACE_URL") or "").rstrip("/")
        found_key = key or env.get("HEADRACE_KEY") or ""
        if not found_url:
            raise _wrong("url", "is missing: give url=… or set HEADRACE_URL")
        if not re.fullmatch(r"https?://[^\s?#]+", found_url):
            raise _wrong("url", f"must be an http or https address, not {found_url!r}")
        if "@" in found_url:
            raise _wrong("url", "must hold no user and password; the key goes into key=…")
        host = _host(found_url)
        if not found_key:
            raise _wrong("key", "is missing: give key=… or set HEADRACE_KEY")
        if not re.fullmatch(r"[\x21-\x7e]+", found_key):
            raise _wrong("key", "must be visible ASCII characters without blanks")
        if not timeout > 0:
            raise _wrong("timeout", f"must be more than 0 seconds, not {timeout!r}")
        if found_url.startswith("http:") and not _local(host):
            _log.warning("The key goes to %s in clear: use https", host)
        return cls(found_url, found_key, timeout)


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
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


def utc_now() -> datetime:
    """The time of this machine: aware, UTC.  The service's own is in its answers."""
    return datetime.now(UTC)
