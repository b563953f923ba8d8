"""AWS's other services: a lake in S3, secrets, invocations; and how long a request may take."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.store.base import CALL_SECONDS, LakeObject, seconds_left

_WRONG = frozenset({"AccessDeniedException", "ResourceNotFoundException", "ValidationException"})


def secret(arn: str) -> str:
    """Return the text of the secret at *arn*.

    Raises Unavailable while Secrets Manager does not answer; what only a wrong deployment can cause
    passes through.
    """
    with _vendor_errors("a secret cannot be read", broken=_WRONG):
        text: str = client_of("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
        return text


def invoke(function: str, event: Mapping[str, Any]) -> None:
    """Have Lambda run *function* with *event*, soon; nobody waits for its answer.

    Raises Unavailable when Lambda does not take it, for whatever reason.
    """
    retries = {"mode": "standard", "total_max_attempts": 2}
    config = Config(connect_timeout=1, read_timeout=4, retries=retries)
    with _vendor_errors(f"{function} cannot be invoked"):
        client = Session().create_client("lambda", config=config)
        client.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )


CONNECT_SECONDS: Final = 1.0
READ_SECONDS: Final = CALL_SECONDS - CONNECT_SECONDS
ATTEMPTS: Final = 3  # of botocore's clients

# Between botocore's attempts: two seconds of its own, five more if AWS says so.
_LONGEST_PAUSE: Final = 7.0


def check_time(**_: object) -> None:
    """Raise Unavailable where there is no time left for a request."""
    if seconds_left() < CALL_SECONDS:
        message = "the table, or the lake, is slow: there is no time left to ask it again"
        raise Unavailable(message)


def mind_time(client: Any) -> None:  # noqa: ANN401  botocore makes its clients at run time
    """Let botocore's *client* begin no attempt, nor pause for one, that would come too late."""
    service = client.meta.service_model.service_id.hyphenize()  # as precise as its own handlers
    client.meta.events.register_first(f"before-send.{service}", check_time)
    client.meta.events.register_first(f"needs-retry.{service}", _no_pause_in_vain)


def _no_pause_in_vain(**_: object) -> bool | None:
    return False if seconds_left() < CALL_SECONDS + _LONGEST_PAUSE else None


_MISSING: Final = frozenset({"NoSuchKey", "404"})
_BROKEN: Final = frozenset({"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId"})


@dataclass(frozen=True, slots=True)
class S3Lake:
    """Objects of one bucket; *prefix* is empty or ends with a slash."""

    client: Any  # botocore's, which ships no types
    bucket: str
    prefix: str

    def put(self, name: str, content: bytes) -> None:
        """Write an object; S3 shows it only when it is whole."""
        with _lake_errors():
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is none."""
        with _lake_errors():
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)
            except ClientError as error:
                if error.response["Error"]["Code"] in _MISSING:
                    return None
                raise
            content: bytes = answer["Body"].read()
            return content

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the objects whose names begin with *prefix*, by name."""
        with _lake_errors():
            return sorted(self._list(prefix))

    def _list(self, prefix: str) -> Iterator[LakeObject]:
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
            for one in page.get("Contents", ()):
                name = one["Key"].removeprefix(self.prefix)
                yield LakeObject(name, one["Size"], one["ETag"])


def lake_in_s3(bucket: str, prefix: str, session: Session | None = None) -> S3Lake:
    """Return the lake under *prefix* of *bucket*, credentials and region as AWS SDKs find them.

    AWS_ENDPOINT_URL_S3 names another S3.
    """
    return S3Lake(client_of("s3", session), bucket, prefix)


def client_of(
    service: str,
    session: Session | None = None,
    url: str | None = None,
    **more: Any,  # noqa: ANN401  botocore's settings
) -> Any:  # noqa: ANN401  botocore makes its clients at run time
    """Return botocore's client of *service*, at *url* or where AWS has it, which minds the time."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        **more,
    )
    client = (session or Session()).create_client(service, endpoint_url=url, config=config)
    mind_time(client)
    return client


@contextmanager
def _vendor_errors(
    refused: str, unreachable: str = "", *, broken: frozenset[str] = frozenset()
) -> Iterator[None]:
    """Turn what botocore raises when a service is slow or away into Unavailable.

    The message begins *refused*, or *unreachable* where no answer came and that is another one.
    The codes *broken*, which only a wrong deployment can cause, pass through.
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
        message = f"{unreachable or refused}: {type(error).__name__}"
        raise Unavailable(message) from error


_lake_errors: Final = partial(
    _vendor_errors, "the lake does not answer", "the lake cannot be reached", broken=_BROKEN
)
