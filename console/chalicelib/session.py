"""Sessions in signed cookies, and the tokens that tie a form to one.

A session holds the id of a key, never its secret; whether the key still stands is looked up at
each request.  Signatures take the deployment's secret and its admin key: to change either ends
every session.
"""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from itsdangerous import BadSignature, URLSafeSerializer

from headrace.domain.errors import Unavailable
from headrace.runtime.wiring import Settings

SESSION: Final = "headrace_session"
DOOR: Final = "headrace_door"
FLASH: Final = "headrace_flash"
LASTS: Final = timedelta(hours=8)
DOOR_LASTS: Final = timedelta(hours=1)

_LEAST: Final = 16  # characters of the secret


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in: with which key, until when, and what ties forms to it."""

    key_id: str
    until: datetime
    nonce: str


@dataclass(frozen=True, slots=True)
class Signing:
    """Signs and reads what browsers keep for us."""

    secret: bytes

    @classmethod
    def of(cls, settings: Settings) -> "Signing":
        """Return the signing of a deployment.  Raises Unavailable when it has no secret."""
        given = settings.session_secret or ""
        if len(given) < _LEAST:
            raise Unavailable(f"HEADRACE_SESSION_SECRET must have at least {_LEAST} characters")
        return cls(sha256(f"console {given} {settings.admin_key}".encode()).digest())

    def open(self, key_id: str, now: datetime) -> tuple[Session, str]:
        """Return a new session, and its cookie's value."""
        session = Session(key_id, now + LASTS, new_nonce())
        until = int(session.until.timestamp())
        return session, self.write(SESSION, [key_id, until, session.nonce])

    def session(self, value: str, now: datetime) -> Session | None:
        """Return the session of a cookie; None when it is over, altered or no session."""
        match self.read(SESSION, value):
            case [str(key_id), int(until), str(nonce)]:
                session = Session(key_id, datetime.fromtimestamp(until, UTC), nonce)
                return session if now < session.until else None
            case _:
                return None

    def form_token(self, nonce: str) -> str:
        """Return the token of the forms that belong to *nonce*."""
        return self.write("form", nonce)

    def is_form_token(self, value: str, nonce: str) -> bool:
        """Tell whether *value* is the token that forms of *nonce* carry."""
        return bool(nonce) and self.read("form", value) == nonce

    def write(self, purpose: str, value: Any) -> str:  # noqa: ANN401  any JSON value
        """Return *value* signed, for *purpose* only."""
        return self._serializer(purpose).dumps(value)

    def read(self, purpose: str, value: str) -> Any:  # noqa: ANN401  what write() was given
        """Return what write() signed for *purpose*; None for anything else."""
        try:
            return self._serializer(purpose).loads(value)
        except BadSignature:
            return None

    def _serializer(self, purpose: str) -> URLSafeSerializer:
        return URLSafeSerializer(self.secret, salt=purpose, signer_kwargs={"digest_method": sha256})


def new_nonce() -> str:
    """Return 128 random bits as text."""
    return secrets.token_urlsafe(16)
