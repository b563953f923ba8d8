"""What a client takes from where it runs: the service's address, its key, and the time.

Address and key are those of arguments, else those of the environment.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import TIMEOUT_MAX
from typing import Final

from headrace.client.address import Address, HttpAddress, absolute_url, read_address
from headrace.domain.errors import InvalidRequest
from headrace.safe_logging import safe_logger

_log: Final = safe_logger("headrace.client")

_wrong: Final = InvalidRequest.of

RETRIES: Final = 6  # tries of a call after the first


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The address of a service and a key; ``timeout`` is seconds for one try of one call.

    The path of a file in ``url`` is absolute, whatever folder the process changes to later.  A
    file and the tables of a deployment need no key: their users are admins.
    """

    url: str
    key: str = field(repr=False)
    timeout: float = 30.0
    address: Address = field(init=False)

    def __post_init__(self) -> None:
        """Read the address.  Raises InvalidRequest."""
        object.__setattr__(self, "url", absolute_url(self.url, working_folder()))
        object.__setattr__(self, "address", read_address(self.url))

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
        if not 0 < timeout <= TIMEOUT_MAX:
            raise _wrong("timeout", f"must be more than 0 seconds and finite, not {timeout!r}")
        settings = cls(found_url, found_key, timeout)
        if isinstance(settings.address, HttpAddress):
            _check_key(found_key)
            if found_url.startswith("http:") and not settings.address.this_machine:
                _log.warning("The key goes to %s in clear: use https", settings.address.host)
        return settings


def working_folder() -> str:
    """Return the working folder of this process; "." where it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109  Path's adds nothing
    except FileNotFoundError:
        return "."


def _check_key(key: str) -> None:
    if not key:
        raise _wrong("key", "is missing: give key=… or set HEADRACE_KEY")
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise _wrong("key", "must be visible ASCII characters without blanks")


def utc_now() -> datetime:
    """The time of this machine: aware, UTC.  The service's own is in its answers."""
    return datetime.now(UTC)
