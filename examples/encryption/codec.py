"""A codec that encrypts: the service stores and shows ciphertext only.

Fernet (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec) from `cryptography`.
"""

import json
from collections.abc import Sequence
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from headrace import JsonCodec, Unreadable


class EncryptedCodec:
    """Writes a value as one JSON string of ciphertext.

    The first of *keys* encrypts, all of them decrypt: put a new key first, and drop the old one
    when no task of its time is kept any more.  ``Fernet.generate_key()`` makes one.

    Raises ValueError for a key that is none.
    """

    private = True  # workers keep messages and tracebacks of errors to themselves

    def __init__(self, keys: Sequence[str | bytes]) -> None:
        self._box = MultiFernet([Fernet(key) for key in keys])
        self._plain = JsonCodec()

    def encode(self, value: object) -> bytes:
        """Return *value* encrypted.  Raises TypeError or ValueError if JSON has no word for it."""
        return b'"%s"' % self._box.encrypt(self._plain.encode(value))

    def decode(self, text: bytes) -> Any:  # noqa: ANN401 (any JSON value)
        """Decrypt *text*.  Raises Unreadable for another key's, or plain text."""
        try:
            token = json.loads(text)
            if not isinstance(token, str):
                raise Unreadable("not encrypted")
            return self._plain.decode(self._box.decrypt(token))
        except InvalidToken as error:
            raise Unreadable("not encrypted with any of these keys") from error
