"""The number that all chance in a test is drawn from."""

import os
import secrets
from collections.abc import Mapping
from typing import Final

from headrace.domain.errors import FieldError, InvalidRequest

SEED_VARIABLE: Final = "HEADRACE_SEED"


def chosen_seed(env: Mapping[str, str] = os.environ) -> int:
    """Return ``HEADRACE_SEED``, or a seed by chance.  Raises InvalidRequest if it is no number."""
    text = env.get(SEED_VARIABLE)
    if not text:
        return secrets.randbelow(1_000_000)
    try:
        return int(text)
    except ValueError:
        message = f"must be a whole number, not {text!r}"
        raise InvalidRequest(
            f"{SEED_VARIABLE} {message}", errors=[FieldError(SEED_VARIABLE, message)]
        ) from None
