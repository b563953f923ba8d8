"""Signed cookies and form tokens.

A session itself is a record of the service (``headrace.ops.operators.sessions``).  The cookie names
the session and is signed, so that a forged cookie does not cost a read.  The signature depends on
the deployment's secret and on its admin key: a change of either ends every session.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

from itsdangerous import BadSignature, URLSafeSerializer

from headrace.domain.errors import Unavailable
from headrace.runtime.wiring import Settings
from headrace.store.records.keys import Session

SESSION: Final = "headrace_session"
DOOR: Final = "headrace_door"
FLASH: Final = "headrace_flash"
DOOR_LASTS: Final = timedelta(hours=1)

_LEAST: Final = 16  # characters of the secret


@dataclass(frozen=True, slots=True)
class CookieSigning:
    """Sign and read cookies and form tokens."""

    secret: bytes

    @classmethod
    def of(cls, settings: Settings) -> "CookieSigning":
        """Return the signing of a deployment.  Raises Unavailable when it has no secret."""
        given = settings.session_secret or ""
        if len(given) < _LEAST:
            raise Unavailable(f"HEADRACE_SESSION_SECRET must have at least {_LEAST} characters")
        return cls(sha256(f"console {given} {settings.admin_key}".encode()).digest())

    def ticket(self, session: Session) -> str:
        """Return the value of a session's cookie."""
        return self.write(SESSION, [session.key_id, session.nonce])

    def named(self, value: str) -> tuple[str, str] | None:
        """Return the key's id and the nonce in a session cookie; None for an invalid cookie."""
        match self.read(SESSION, value):
            case [str(key_id), str(nonce)]:
                return key_id, nonce
            case _:
                return None

    def form_token(self, nonce: str) -> str:
        """Return the token of forms for *nonce*."""
        return self.write("form", nonce)

    def is_form_token(self, value: str, nonce: str) -> bool:
        """Return whether *value* is the token of forms for *nonce*."""
        return bool(nonce) and self.read("form", value) == nonce

    def write(self, purpose: str, value: object) -> str:
        """Return *value* signed, for *purpose* only."""
        return self._serializer(purpose).dumps(value)

    def read(self, purpose: str, value: str) -> object:
        """Return the value that write() signed for *purpose*; None for another text."""
        try:
            return self._serializer(purpose).loads(value)
        except BadSignature:
            return None

    def _serializer(self, purpose: str) -> URLSafeSerializer:
        return URLSafeSerializer(self.secret, salt=purpose, signer_kwargs={"digest_method": sha256})
