"""Which addresses of the internet a request may be sent to that somebody else has named.

Without this, a queue's target could be the metadata service of the machine, or what stands behind
the firewall.  Python's own ``is_global`` differs from version to version, so what is refused stands
here (IANA's special-purpose registries); what hides an IPv4 address is unwrapped or refused.
"""

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import Final

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
_V6_GLOBAL: Final = IPv6Network("2000::/3")  # all that is handed out
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
