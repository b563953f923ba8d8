"""The client of DynamoDB, made by botocore: boto3 would add its import and nothing that is used.

Even botocore's takes as long as importing all of this service, and few calls need it: so it is made
when one does.

Its errors and figures become ours here.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.store.call_scope import charge
from headrace.store.dynamo.raw_client import CONNECTIONS, RawClient
from headrace.store.services import AwsClient, client_of, no_answer

_BROKEN: Final = frozenset(
    {"ValidationException", "ResourceNotFoundException", "AccessDeniedException"}
)


_IN_DOUBT: Final = frozenset({"InternalServerError"})
_NEVER_ARRIVED: Final = (ConnectTimeoutError, EndpointConnectionError)


class AnswerLost(Unavailable):
    """The table did not answer a request, which may have been done all the same."""


@contextmanager
def aws_errors() -> Iterator[None]:
    """Turn what boto3 raises when the table is throttled or away into Unavailable.

    AnswerLost where it may have done what it was asked.  What only a wrong deployment or a defect
    of ours can cause passes through and is a 500.
    """
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in _BROKEN:
            raise
        code = error.response["Error"]["Code"]
        message = f"the table does not answer: {code}"
        raise (AnswerLost if code in _IN_DOUBT else Unavailable)(message) from error
    except _NEVER_ARRIVED as error:
        message = f"the table cannot be reached: {no_answer(error)}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"the table does not answer: {type(error).__name__}"
        raise AnswerLost(message) from error


def consumed(answer: dict[str, Any]) -> float:
    """Return the units that an answer says it cost."""
    capacity = answer.get("ConsumedCapacity") or []
    parts: list[dict[str, float]] = capacity if isinstance(capacity, list) else [capacity]
    return sum(part.get("CapacityUnits", 0.0) for part in parts)


def charge_all(answer: dict[str, Any], *, write: bool) -> None:
    """Put what an answer says it cost on the meter."""
    units = consumed(answer)
    if write:
        charge(write=units)
    else:
        charge(read=units)


# Where DynamoDB is at an address that follows from the region's name.
_PLAIN_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]")


class _WhenAsked:
    """botocore's client, made when it is first used; where it is, is known before."""

    def __init__(self, make: partial[Any], url: str, region: str) -> None:
        self._make = make
        self.meta = SimpleNamespace(endpoint_url=url, region_name=region)

    @cached_property
    def _client(self) -> AwsClient:
        return self._make()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  likewise
        return getattr(self._client, name)


def connected(
    url: str | None,
    session: Session | None = None,
    *,
    region: str | None = None,
    unchecked: bool = False,
) -> RawClient:
    """Return a client of the DynamoDB at *url*, or of Amazon's where it is None.

    Region and credentials are those of *session*, else of the environment, as every AWS SDK finds
    them; *region* goes before.  An engine that asks for credentials and believes any is
    *unchecked*: where the environment has none it gets some, and nobody else in this process does.
    """
    session = session or Session()
    if region:
        session.set_config_variable("region", region)
    if unchecked and "AWS_ACCESS_KEY_ID" not in os.environ:
        session.set_credentials("local", "local")
    if unchecked and not session.get_config_variable("region"):
        session.set_config_variable("region", "us-east-1")
    return RawClient(late_client(session, url), session.get_credentials())


def late_client(session: Session, url: str | None) -> AwsClient:
    """Return botocore's client, not yet made where its address is known without it."""
    # Requests are built in one place, and tested there.
    more = {"max_pool_connections": CONNECTIONS, "parameter_validation": False}
    make = partial(client_of, "dynamodb", session, url, **more)
    region = session.get_config_variable("region")
    address = url or _address(session, region)
    return _WhenAsked(make, address, region) if region and address else make()


def _address(session: Session, region: str | None) -> str | None:
    """Return Amazon's address in *region*; None where only botocore can tell."""
    configured = (
        any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ)
        or {"endpoint_url", "services"} & session.get_scoped_config().keys()
        or session.get_config_variable("use_fips_endpoint")
        or session.get_config_variable("use_dualstack_endpoint")
    )
    if configured or not _PLAIN_REGION.fullmatch(region or ""):
        return None
    return f"https://dynamodb.{region}.amazonaws.com"
