"""Clients of AWS's services: secrets, Lambda functions, time limits and errors of requests."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.domain.limits import TARGET_ANSWER_BYTES
from headrace.domain.push_messages import TargetAnswer
from headrace.store.call_scope import CALL_SECONDS, seconds_left

AwsClient: TypeAlias = Any
"""A client of botocore's, which makes their classes at run time."""


_AMAZONS: Final = re.compile(r"\.amazonaws\.com(\.cn)?(/|$)")
_THROTTLED: Final = frozenset({"TooManyRequestsException", "EC2ThrottledException"})
_WRONG = frozenset({"AccessDeniedException", "ResourceNotFoundException", "ValidationException"})


def secret(arn: str) -> str:
    """Return the text of the secret at *arn*.

    Raises Unavailable while Secrets Manager does not answer; an error that only a wrong deployment
    can cause passes through.
    """
    with vendor_errors("a secret cannot be read", broken=_WRONG):
        text: str = client_of("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
        return text


def invoke(function: str, event: Mapping[str, Any]) -> None:
    """Invoke the Lambda function *function* with *event*, without waiting for its answer.

    Raises Unavailable if Lambda does not accept the event, for any reason.
    """
    retries = {"mode": "standard", "total_max_attempts": 2}
    config = Config(connect_timeout=1, read_timeout=4, retries=retries)
    with vendor_errors(f"{function} cannot be invoked"):
        client = Session().create_client("lambda", config=config)
        client.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )


def call_function(arn: str, event: bytes, seconds: float) -> TargetAnswer:
    """Call the Lambda function *arn* with *event*, and wait up to *seconds* for its answer."""
    retries = {"mode": "standard", "total_max_attempts": 1}
    config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=seconds, retries=retries)
    try:
        client = Session().create_client("lambda", region_name=arn.split(":")[3], config=config)
        answer = client.invoke(FunctionName=arn, Payload=event)
        body: bytes = answer["Payload"].read(TARGET_ANSWER_BYTES + 1)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _THROTTLED:
            return TargetAnswer(429)
        return TargetAnswer(None, error=code, message=str(error))
    except (ConnectTimeoutError, ReadTimeoutError):
        return TargetAnswer(None, error="Timeout", message=f"no answer within {seconds:g} s")
    except BotoCoreError as error:
        return TargetAnswer(None, error=type(error).__name__, message=str(error))
    whole = len(body) <= TARGET_ANSWER_BYTES
    if "FunctionError" in answer:
        text = body[:TARGET_ANSWER_BYTES].decode("utf-8", "replace")
        return TargetAnswer(None, error="FunctionError", message=text)
    return TargetAnswer(200, body[:TARGET_ANSWER_BYTES], whole=whole)


CONNECT_SECONDS: Final = 1.0
READ_SECONDS: Final = CALL_SECONDS - CONNECT_SECONDS
ATTEMPTS: Final = 3  # of botocore's clients

# Between the attempts of botocore: up to two seconds, and five more if AWS asks for that.
_LONGEST_PAUSE: Final = 7.0


def check_time(**_: object) -> None:
    """Raise Unavailable if there is no time left for a request."""
    if seconds_left() < CALL_SECONDS:
        message = "the table, or the lake, is slow: there is no time left to ask it again"
        raise Unavailable(message)


def limit_time(client: AwsClient) -> None:
    """Stop *client* from attempts, and from pauses before attempts, that would be too late."""
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.register_first(f"before-send.{service}", check_time)
    client.meta.events.register_first(f"needs-retry.{service}", _skip_useless_pause)


def _skip_useless_pause(**_: object) -> bool | None:
    return False if seconds_left() < CALL_SECONDS + _LONGEST_PAUSE else None


def client_of(
    service: str,
    session: Session | None = None,
    url: str | None = None,
    **more: Any,  # noqa: ANN401  botocore's settings
) -> AwsClient:
    """Return a client of *service* with time limits, at *url* or at the address of AWS."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        **more,
    )
    client = (session or Session()).create_client(service, endpoint_url=url, config=config)
    limit_time(client)
    return client


@contextmanager
def vendor_errors(
    refused: str, unreachable: str = "", *, broken: frozenset[str] = frozenset()
) -> Iterator[None]:
    """Turn errors of botocore for a slow or unreachable service into Unavailable.

    The message begins with *refused*, or with *unreachable* if no answer came.  The codes *broken*,
    which only a wrong deployment can cause, pass through.
    """
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in broken:
            raise
        message = f"{refused}: {code}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"{unreachable or refused}: {no_answer(error)}"
        raise Unavailable(message) from error


def no_answer(error: BotoCoreError) -> str:
    """Describe an error without an answer; if nothing listens, with a hint what to check."""
    kind = type(error).__name__
    url = error.kwargs.get("endpoint_url")
    if not url or not isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return kind
    check = "the network, and the region"
    if not _AMAZONS.search(url):
        check = "whether it is started, and HEADRACE_DYNAMODB_URL or AWS_ENDPOINT_URL its address"
    return f"{kind}: nothing answers at {url}; check {check}"
