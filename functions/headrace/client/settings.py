"""Where the service is, and with which key: from arguments, else from the environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.domain.errors import FieldError, InvalidRequest

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
        if not found_key:
            raise _wrong("key", "is missing: give key=… or set HEADRACE_KEY")
        if not re.fullmatch(r"[\x21-\x7e]+", found_key):
            raise _wrong("key", "must be visible ASCII characters without blanks")
        if not timeout > 0:
            raise _wrong("timeout", f"must be more than 0 seconds, not {timeout!r}")
        return cls(found_url, found_key, timeout)


def _wrong(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{name} {message}", errors=[FieldError(name, message)])
