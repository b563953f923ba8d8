"""Console sessions: begin them with a key, and end them on the server.

A session is a record of the control table, read at each request.  It ends when its user signs out,
when its key is revoked, and an hour after the last page.  It costs a read unit per request, and a
write unit per minute while somebody uses the console.

One source may present a wrong key ten times in a row, then once every half minute.  The count is a
record of the control table too, so all processes share it.  An attempt is counted before the key is
checked, and uncounted if the key was right, so parallel requests gain nothing.
"""

import ipaddress
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.access import NOBODY, Principal, id_in
from headrace.domain.errors import RateLimited, Unauthenticated, Unavailable
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.call_scope import Caller, acting, calling
from headrace.store.records.keys import (
    LASTS,
    SESSIONS,
    Session,
    session_name,
    session_of,
    session_record,
)

_ATTEMPTS: Final = "attempts"
_FORMS: Final = "form"  # the forms that were sent, of the kind that may be sent once
IN_A_ROW: Final = 10
EVERY: Final = timedelta(seconds=30)
"""One more attempt is granted after so long, up to IN_A_ROW."""

_TRIES: Final = 10
_NETWORK_BITS: Final = 64  # of an IPv6 address: what one subscriber is given


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


_SEEN_NOTED_EVERY: Final = timedelta(minutes=1)


def new_nonce() -> str:
    """Return 128 random bits as text."""
    return secrets.token_urlsafe(16)


class Sessions(ServicePart):
    """Begins, resumes and ends sessions."""

    def sign_in(self, presented: str, *, source: str, request_id: str | None = None) -> Session:
        """Begin a session with the key *presented* from the address *source*.

        Both a session and the refusal of a key are in the audit.  Raises Unauthenticated for a
        wrong key, and RateLimited after too many wrong ones from the source; that is not in the
        audit, because it would fill it.
        """
        where = {"source": source}
        try:
            principal = self._verify(presented, source)
        except Unauthenticated:
            claimed = id_in(presented)
            with calling(Caller(NOBODY, request_id)):
                ids = [claimed] if claimed else None
                self.service.audit.note("refuse_sign_in", where=where, ids=ids, changed=0)
            raise
        now = self.now()
        session = Session(principal.key_id, new_nonce(), now + LASTS, now, principal.digest)
        self.store.put_record(session_record(session), replaces=None)
        with acting(principal, request_id=request_id):
            self.service.audit.note("sign_in", where=where)
        return session

    def resume(self, key_id: str, nonce: str, *, active: bool) -> tuple[Session, Principal]:
        """Return a session and its principal; *active* if the user has asked for a page.

        Raises Unauthenticated when the session is over, or its key is not valid.
        """
        record = self.store.record(SESSIONS, session_name(key_id, nonce))
        now = self.now()
        if record is None or session_of(record).has_ended(now):
            raise Unauthenticated("the session is over: sign in again")
        session = session_of(record)
        principal = self.service.keys.known(key_id, session.digest)
        if active and now - session.seen_at >= _SEEN_NOTED_EVERY:
            seen = replace(session, seen_at=now, version=session.version + 1)
            # Of several pages at once one notes it, and a session that was ended stays so.
            with suppress(Unavailable):
                self.store.put_record(session_record(seen), replaces=session.version)
        return session, principal

    def use_form(self, session: Session, form: str) -> bool:
        """Note that *form*, a random name, was sent in this session; return False for a repeat."""
        sent = Record(_FORMS, f"{session.name}:{form}", {}, expires_at=session.until)
        return self.store.put_record(sent, replaces=None)

    def sign_out(self, session: Session) -> None:
        """End a session, and record it in the audit."""
        if self.store.drop_record(SESSIONS, session.name):
            self.service.audit.note("sign_out")

    def _verify(self, presented: str, source: str) -> Principal:
        """Return the principal of the key *presented* from the address *source*.

        Raises Unauthenticated for a wrong key, and RateLimited, even for a right one, after too
        many wrong ones from the source.
        """
        name = source_of(source)
        self._count(name, -1)
        try:
            principal = self.service.keys.verify(presented)
        except Unauthenticated:
            raise
        except BaseException:
            self._count(name, 1)  # it was not the key that failed
            raise
        self._count(name, 1)
        return principal

    def _count(self, name: str, step: int) -> None:
        """Use an attempt (-1) or restore one (1).  Raises RateLimited without attempts."""
        for _ in range(_TRIES):
            now = self.now()
            record = self.store.record(_ATTEMPTS, name)
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
                _ATTEMPTS, name, body, (version or 0) + 1, expires_at=now + EVERY * (IN_A_ROW + 1)
            )
            if self.store.put_record(counted, replaces=version):
                return
        if step < 0:
            raise RateLimited("too many sign-ins from this address at once: try again in a second")
