"""Signed cookies and form tokens.

A session itself is a record of the service (``headrace.ops.operators.sessions``).  The cookie names
it and is signed, so that a made-up one costs no look at the table.  Signatures take the
deployment's secret and its admin key: to change either ends every session.
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
    """Signs cookies and form tokens, and reads them."""

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
        """Return the key's id and the nonce of the session that a cookie names; None for none."""
        match self.read(SESSION, value):
            case [str(key_id), str(nonce)]:
                return key_id, nonce
            case _:
                return None

    def form_token(self, nonce: str) -> str:
        """Return the token of the forms that belong to *nonce*."""
        return self.write("form", nonce)

    def is_form_token(self, value: str, nonce: str) -> bool:
        """Tell whether *value* is the token that forms of *nonce* carry."""
        return bool(nonce) and self.read("form", value) == nonce

    def write(self, purpose: str, value: object) -> str:
        """Return *value* signed, for *purpose* only."""
        return self._serializer(purpose).dumps(value)

    def read(self, purpose: str, value: str) -> object:
        """Return the value that write() signed for *purpose*; None for anything else."""
        try:
            return self._serializer(purpose).loads(value)
        except BadSignature:
            return None

    def _serializer(self, purpose: str) -> URLSafeSerializer:
        return URLSafeSerializer(self.secret, salt=purpose, signer_kwargs={"digest_method": sha256})
