"""Connections to DynamoDB, and the errors of AWS as errors of Headrace.

A client of botocore is made when it is first used, because making it takes as long as importing
the service, and few calls need it.

A program that uses the tables of a deployment by its own rights gets errors that say which right is
missing (``CallersRights``).  In the deployment itself, a refusal by IAM is a defect and a 500.

CloudFormation makes up the names of the tables, so that a stack can be deployed again beside what
an older stack of its name has left.  The outputs of the stack say which tables are its own
(``Deployment``).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)
from botocore.session import Session

from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.offload import Lake, ObjectStore
from headrace.store.call_scope import charge
from headrace.store.dynamo.raw_client import CONNECTIONS, RawClient
from headrace.store.lake import lake_at
from headrace.store.objects import objects_at
from headrace.store.services import AwsClient, client_of, no_answer

_BROKEN: Final = frozenset(
    {"ValidationException", "ResourceNotFoundException", "AccessDeniedException"}
)


_IN_DOUBT: Final = frozenset({"InternalServerError"})
_NEVER_ARRIVED: Final = (ConnectTimeoutError, EndpointConnectionError)


class AnswerLost(Unavailable):
    """The table did not answer a request, but it may have carried out the request."""


@contextmanager
def aws_errors() -> Iterator[None]:
    """Turn errors of boto3 for a throttled or unreachable table into Unavailable.

    AnswerLost if the table may have carried out the request.  An error that only a wrong deployment
    or a defect can cause passes through and is a 500.
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
    """Return the consumed units in an answer."""
    capacity = answer.get("ConsumedCapacity") or []
    parts: list[dict[str, float]] = capacity if isinstance(capacity, list) else [capacity]
    return sum(part.get("CapacityUnits", 0.0) for part in parts)


def charge_all(answer: dict[str, Any], *, write: bool) -> None:
    """Add the consumed units in an answer to the meter."""
    units = consumed(answer)
    if write:
        charge(write=units)
    else:
        charge(read=units)


# Regions where the address of DynamoDB follows from the name of the region.
_PLAIN_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]")


class _LazyClient:
    """A client of botocore that is made when it is first used; its address is known before."""

    def __init__(self, make: partial[Any], url: str, region: str) -> None:
        self._make = make
        self.meta = SimpleNamespace(endpoint_url=url, region_name=region)

    @cached_property
    def _client(self) -> AwsClient:
        return self._make()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any member of the client
        return getattr(self._client, name)


def connected(
    url: str | None,
    session: Session | None = None,
    *,
    region: str | None = None,
    unchecked: bool = False,
) -> RawClient:
    """Return a client of the DynamoDB at *url*, or of AWS if it is None.

    Region and credentials are those of *session*, or of the environment; *region* overrides them.
    An *unchecked* engine accepts any credentials: without credentials in the environment this
    client alone uses made-up ones.
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
    """Return a client of botocore, which is made late if its address is known without it."""
    # Requests are built in one place, and tested there.
    more = {"max_pool_connections": CONNECTIONS, "parameter_validation": False}
    make = partial(client_of, "dynamodb", session, url, **more)
    region = session.get_config_variable("region")
    address = url or _address(session, region)
    return _LazyClient(make, address, region) if region and address else make()


def _address(session: Session, region: str | None) -> str | None:
    """Return the address of DynamoDB in *region*; None if only botocore knows it."""
    configured = (
        any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ)
        or {"endpoint_url", "services"} & session.get_scoped_config().keys()
        or session.get_config_variable("use_fips_endpoint")
        or session.get_config_variable("use_dualstack_endpoint")
    )
    if configured or not _PLAIN_REGION.fullmatch(region or ""):
        return None
    return f"https://dynamodb.{region}.amazonaws.com"


_T = TypeVar("_T")

_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_UNKNOWN: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_MISSING: Final = frozenset({"ResourceNotFound", "ResourceNotFoundException"})
_NONE: Final = (
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)


@dataclass(frozen=True, slots=True)
class CallersRights:
    """The rights of the user of this program on AWS; *of* names the stack."""

    of: str

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn errors that the user must fix into Unauthenticated, Forbidden, InvalidRequest."""
        try:
            yield
        except ClientError as error:
            found = self._error(error.response["Error"], error.operation_name)
            if found is None:
                raise
            raise found from error
        except _NONE as error:
            message = f"AWS takes no call without credentials: {error}"
            raise Unauthenticated(message) from error

    def wrap(self, used: _T) -> _T:
        """Return *used*, a client or a lake, whose methods raise translated errors."""
        return cast("_T", _Translated(self, used))

    def look_at(self, answer: object) -> None:
        """Raise the error of the first statement of a batch that the user has no right to."""
        for response in answer.get("Responses", ()) if isinstance(answer, dict) else ():
            failed = response.get("Error") if isinstance(response, dict) else None
            found = failed and self._error(failed, "BatchExecuteStatement")
            if found:
                raise found

    def _error(self, failed: dict[str, str], operation: str) -> HeadraceError | None:
        code, reason = failed.get("Code", ""), failed.get("Message") or "no reason given"
        if code in _DENIED:
            return Forbidden(f"IAM refuses {operation} on {self.of}: {reason}")
        if code in _UNKNOWN:
            return Unauthenticated(f"AWS does not take these credentials ({code}): {reason}")
        if code in _MISSING:
            return InvalidRequest.of("url", f"means {self.of}, which has no such table: {reason}")
        return None


class _Translated:
    def __init__(self, rights: CallersRights, used: object) -> None:
        self._rights, self._used = rights, used

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any member
        found = getattr(self._used, name)
        if not callable(found):
            return found
        translated = self._wrapped(found)
        setattr(self, name, translated)  # later lookups find it without this method
        return translated

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  the call's own
            with self._rights.translated():
                answer = call(*arguments, **named)
            self._rights.look_at(answer)
            return answer

        return called


TASKS_TABLE: Final = "TasksTableName"
CONTROL_TABLE: Final = "ControlTableName"


@dataclass(frozen=True, slots=True)
class StackFacts:
    """Outputs and parameters of a stack, by name."""

    outputs: Mapping[str, str]
    parameters: Mapping[str, str]


class Deployment:
    """The stack *stack* in *region*, with credentials as every AWS SDK finds them.

    A refusal by AWS, now or later, is Unauthenticated, Forbidden or InvalidRequest.
    """

    def __init__(self, region: str, stack: str) -> None:
        self._stack = stack
        self._rights = CallersRights(f"the stack {stack} in {region}")
        self._session = Session()  # one for all clients: a profile may prompt the user
        self._session.set_config_variable("region", region)

    def facts(self) -> StackFacts:
        """Return the description of the stack, from one call of CloudFormation.

        Raises InvalidRequest if the stack does not exist or is not a stack of Headrace, and
        Unavailable while CloudFormation does not answer.
        """
        try:
            with self._rights.translated():
                client = client_of("cloudformation", self._session)
                (found,) = client.describe_stacks(StackName=self._stack)["Stacks"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ValidationError":
                raise InvalidRequest.of(
                    "url", f"means {self._rights.of}: it does not exist"
                ) from error
            message = f"CloudFormation does not answer: {code}"
            raise Unavailable(message) from error
        except BotoCoreError as error:
            message = f"CloudFormation cannot be reached: {no_answer(error)}"
            raise Unavailable(message) from error
        facts = StackFacts(
            {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())},
            {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", ())},
        )
        if not facts.outputs.keys() >= {TASKS_TABLE, CONTROL_TABLE}:
            state = found.get("StackStatus", "in no state")
            message = f"means {self._rights.of}, which names no tables of Headrace: it is {state}"
            raise InvalidRequest.of("url", message)
        return facts

    def client(self, url: str | None) -> AwsClient:
        """Return a client of its DynamoDB, or of the DynamoDB at *url*."""
        with self._rights.translated():
            return self._rights.wrap(connected(url, self._session))

    def objects(self, address: str) -> ObjectStore:
        """Return the large texts of its tasks at *address*."""
        return self._rights.wrap(objects_at(address, self._session))

    def lake(self, address: str) -> Lake:
        """Return the lake at *address*."""
        return self._rights.wrap(lake_at(address, self._session))
