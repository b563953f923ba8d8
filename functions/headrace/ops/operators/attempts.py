"""How often one source may present a wrong key: ten in a row, then one every half minute.

The count is a record of the control table, so that it holds whichever process is asked.  An attempt
is counted before the key is looked at and given back if the key was right: nobody gets more of them
by asking many processes at once.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.access import Principal
from headrace.domain.errors import RateLimited, Unauthenticated
from headrace.ops.operators.keys import KeyOperations
from headrace.store.base import Record, Store

KIND: Final = "attempts"
IN_A_ROW: Final = 10
EVERY: Final = timedelta(seconds=30)
"""One more attempt is granted after so long, up to IN_A_ROW."""

_TRIES: Final = 10
_NETWORK_BITS: Final = 64  # of an IPv6 address: what one subscriber is given


@dataclass(frozen=True, slots=True)
class Attempts:
    """The use case, with what it needs from outside."""

    store: Store
    now: Callable[[], datetime]
    keys: KeyOperations

    def verify(self, presented: str, *, source: str) -> Principal:
        """Return whose key was *presented* from the address *source*.

        Raises Unauthenticated for a wrong one, and RateLimited, whatever the key, for a source
        that had too many wrong ones.
        """
        name = source_of(source)
        self._count(name, -1)
        try:
            principal = self.keys.verify(presented)
        except Unauthenticated:
            raise
        except BaseException:
            self._count(name, 1)  # it was not the key that failed
            raise
        self._count(name, 1)
        return principal

    def _count(self, name: str, step: int) -> None:
        """Take an attempt (-1) or give one back (1).  Raises RateLimited when there is none."""
        for _ in range(_TRIES):
            now = self.now()
            record = self.store.record(KIND, name)
            left = IN_A_ROW if record is None else _left(record, now)
            if step > 0 and left >= IN_A_ROW:
                return
            if left + step < 0:
                seconds = max(1, round((1 - left) * EVERY.total_seconds()))
                raise RateLimited(
                    f"too many wrong keys from this address: try again in {seconds} s"
                )
            version = record.version if record else None
            body = {"left": min(float(IN_A_ROW), left + step), "at": now.isoformat()}
            counted = Record(
                KIND, name, body, (version or 0) + 1, expires_at=now + EVERY * (IN_A_ROW + 1)
            )
            if self.store.put_record(counted, replaces=version):
                return
        if step < 0:
            raise RateLimited("too many sign-ins from this address at once: try again in a second")


def source_of(address: str) -> str:
    """Return the source to count by: an IPv4 address, the /64 network of an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if parsed.version == 6:  # noqa: PLR2004  the protocol's own number
        return str(ipaddress.ip_network(f"{parsed}/{_NETWORK_BITS}", strict=False))
    return str(parsed)


def _left(record: Record, now: datetime) -> float:
    since = max(timedelta(), now - datetime.fromisoformat(record.body["at"]))
    return min(float(IN_A_ROW), float(record.body["left"]) + since / EVERY)
