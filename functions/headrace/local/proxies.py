"""Headers of trusted proxies: the address of the client, and the URL that the client uses."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headrace.local.requests import LocalRequest

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORWARDED: Final = "x-forwarded-"
_HOST: Final = re.compile(
    r"[0-9A-Za-z._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?"
)
_PREFIX: Final = re.compile(r"(/[0-9A-Za-z._~-]{1,100}){1,10}")


def networks(text: str) -> tuple[Network, ...]:
    """Read addresses and networks, separated by commas.  Raises ValueError for other text."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts if part)


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The addresses of the proxies whose X-Forwarded headers are honoured."""

    trusted: Sequence[Network] = ()

    def read(self, request: LocalRequest) -> LocalRequest:
        """Return *request* as its client sent it, if a trusted proxy passed it on.

        X-Forwarded headers are removed, because any client can send them.
        """
        forwarded = {
            name: value for name, value in request.headers.items() if name.startswith(_FORWARDED)
        }
        if not forwarded:
            return request
        headers = {name: value for name, value in request.headers.items() if name not in forwarded}
        if not self._trusts(request.source):
            return replace(request, headers=headers)
        base = _last(forwarded, "prefix").rstrip("/")
        host = _last(forwarded, "host")
        if _HOST.fullmatch(host):
            headers["host"] = host
        return replace(
            request,
            headers=headers,
            source=self._client(request),
            proto="https" if _last(forwarded, "proto").lower() == "https" else "http",
            base=base if _PREFIX.fullmatch(base) else "",
        )

    def _trusts(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self.trusted)

    def _client(self, request: LocalRequest) -> str:
        """Return the last address that does not belong to a trusted proxy."""
        given = request.headers.get("x-forwarded-for", "")
        hops = [hop.strip() for hop in given.split(",") if hop.strip()]
        for hop in reversed(hops):
            if _address(hop) is None:
                break  # made up, like everything before it
            if not self._trusts(hop):
                return hop
        return request.source


NO_PROXIES: Final = TrustedProxies()


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _last(forwarded: dict[str, str], name: str) -> str:
    """Return the value of the nearest proxy."""
    return forwarded.get(_FORWARDED + name, "").rpartition(",")[2].strip()
