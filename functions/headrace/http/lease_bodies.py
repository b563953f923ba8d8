"""The body that opens a group lease."""

from typing import Annotated

from pydantic import AfterValidator, Field

from headrace.domain import limits
from headrace.http.fields import Body, Keepalive, text_schema, text_within

_LEAST, _MOST = limits.LEASE_NAME_BYTES

LeaseName = Annotated[str, AfterValidator(text_within(_MOST, _LEAST)), text_schema(_MOST)]


class LeaseBody(Body):
    """How long the lease lasts, and a name that nobody else may have meanwhile."""

    name: LeaseName | None = Field(
        default=None,
        description="While a lease of this name is open, and for a day after it ended, no other "
        f"one is opened. Up to {_MOST} bytes.",
    )
    keepalive_timeout_in_seconds: Keepalive = Field(
        default=60, description="How long it lasts, and what each extension makes it last again."
    )
