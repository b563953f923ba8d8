"""Sessions of people in the console: begun with a key, and ended here, whatever a browser keeps.

A session is a record of the control table, read at each request: who signs out, whose key is
revoked or who has not asked for a page in an hour has none any more.  It costs a read unit a
request, and a write unit a minute while somebody looks around.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.access import NOBODY, Principal
from headrace.domain.errors import Unauthenticated, Unavailable
from headrace.ops.operators.attempts import Attempts
from headrace.ops.operators.keys import KeyOperations, acting
from headrace.ops.shared.audit import Audit, Caller, calling
from headrace.store.base import Store
from headrace.store.records import keys as key_body
from headrace.store.records.sessions import (
    KIND,
    LASTS,
    Session,
    from_record,
    session_name,
    to_record,
)

_SEEN_NOTED_EVERY: Final = timedelta(minutes=1)


def new_nonce() -> str:
    """Return 128 random bits as text."""
    return secrets.token_urlsafe(16)


@dataclass(frozen=True, slots=True)
class Sessions:
    """The use case, with what it needs from outside."""

    store: Store
    now: Callable[[], datetime]
    keys: KeyOperations
    attempts: Attempts
    audit: Audit
    new_nonce: Callable[[], str] = new_nonce

    def sign_in(self, presented: str, *, source: str, request_id: str | None = None) -> Session:
        """Begin a session with the key that was *presented* from the address *source*.

        Both a session and the refusal of a key are in the audit.  Raises Unauthenticated for a
        wrong key, and RateLimited as Attempts do, which is in no audit: it would fill it.
        """
        where = {"source": source}
        try:
            principal = self.attempts.verify(presented, source=source)
        except Unauthenticated:
            claimed = key_body.id_in(presented)
            with calling(Caller(NOBODY, request_id)):
                ids = [claimed] if claimed else None
                self.audit.note("refuse_sign_in", where=where, ids=ids, changed=0)
            raise
        now = self.now()
        session = Session(principal.key_id, self.new_nonce(), now + LASTS, now, principal.digest)
        self.store.put_record(to_record(session), replaces=None)
        with acting(principal, request_id=request_id):
            self.audit.note("sign_in", where=where)
        return session

    def resume(self, key_id: str, nonce: str, *, active: bool) -> tuple[Session, Principal]:
        """Return a session and who it is; *active* is somebody who has asked for a page.

        Raises Unauthenticated when the session is over, or its key is none any more.
        """
        record = self.store.record(KIND, session_name(key_id, nonce))
        now = self.now()
        if record is None or from_record(record).over(now):
            raise Unauthenticated("the session is over: sign in again")
        session = from_record(record)
        principal = self.keys.known(key_id, session.digest)
        if active and now - session.seen_at >= _SEEN_NOTED_EVERY:
            seen = replace(session, seen_at=now, version=session.version + 1)
            # Of several pages at once one notes it, and a session that was ended stays so.
            with suppress(Unavailable):
                self.store.put_record(to_record(seen), replaces=session.version)
        return session, principal

    def sign_out(self, session: Session) -> None:
        """End a session; the audit knows by whom."""
        if self.store.drop_record(KIND, session.name):
            self.audit.note("sign_out")
