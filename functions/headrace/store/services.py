"""AWS's other services: a lake and payloads in S3, secrets, invocations; how long requests take."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
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
from headrace.domain.offload import StoredObject, Upload
from headrace.domain.push_messages import TargetAnswer
from headrace.store.base import LakeObject
from headrace.store.call_scope import CALL_SECONDS, seconds_left
from headrace.store.lake import S3Access

AwsClient: TypeAlias = Any
"""A client of botocore's, which makes their classes at run time."""

_One = TypeVar("_One")
_Made = TypeVar("_Made")

_AMAZONS: Final = re.compile(r"\.amazonaws\.com(\.cn)?(/|$)")
_THROTTLED: Final = frozenset({"TooManyRequestsException", "EC2ThrottledException"})
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


def call_function(arn: str, event: bytes, seconds: float) -> TargetAnswer:
    """Call the Lambda function *arn* with *event* and wait for its answer, so long at most."""
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

# Between botocore's attempts: two seconds of its own, five more if AWS says so.
_LONGEST_PAUSE: Final = 7.0


def check_time(**_: object) -> None:
    """Raise Unavailable where there is no time left for a request."""
    if seconds_left() < CALL_SECONDS:
        message = "the table, or the lake, is slow: there is no time left to ask it again"
        raise Unavailable(message)


def mind_time(client: AwsClient) -> None:
    """Let botocore's *client* begin no attempt, nor pause for one, that would come too late."""
    service = client.meta.service_model.service_id.hyphenize()  # as precise as its own handlers
    client.meta.events.register_first(f"before-send.{service}", check_time)
    client.meta.events.register_first(f"needs-retry.{service}", _no_pause_in_vain)


def _no_pause_in_vain(**_: object) -> bool | None:
    return False if seconds_left() < CALL_SECONDS + _LONGEST_PAUSE else None


_PIECE: Final = 1024 * 1024
_ROLE_SESSION: Final = "headrace"
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_BEHIND_THE_END: Final = "InvalidRange"
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

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of an object, or what is *within* a range; None if there is none."""
        part = {} if within is None else {"Range": f"bytes={within.start}-{within.stop - 1}"}
        with _lake_errors():
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name, **part)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in _MISSING or code == _BEHIND_THE_END:
                    return None if code in _MISSING else b""
                raise
            content: bytes = answer["Body"].read()
            return content

    @contextmanager
    def pieces(self, name: str) -> Iterator[Iterator[bytes] | None]:
        """Give the content of an object piece by piece; None if there is none."""
        with _lake_errors():
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)
            except ClientError as error:
                if error.response["Error"]["Code"] in _MISSING:
                    yield None
                    return
                raise
            yield answer["Body"].iter_chunks(_PIECE)

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


def lake_in_s3(
    bucket: str, prefix: str, session: Session | None = None, access: S3Access | None = None
) -> S3Lake:
    """Return the lake under *prefix* of *bucket*, credentials and region as AWS SDKs find them.

    Or as *access* says.  AWS_ENDPOINT_URL_S3 names another S3.
    """
    if access is None:
        return S3Lake(client_of("s3", session), bucket, prefix)
    signed_in = _signed_in(session or Session(), access)
    return S3Lake(client_of("s3", signed_in, access.endpoint), bucket, prefix)


def _signed_in(session: Session, access: S3Access) -> Session:
    """Return *session* in the region and as the role that *access* names."""
    if access.region:
        session.set_config_variable("region", access.region)
    if access.role_arn:
        sts = client_of("sts", session)
        source = AssumeRoleCredentialFetcher(
            client_creator=lambda *_given, **_named: sts,
            source_credentials=session.get_credentials(),
            role_arn=access.role_arn,
            extra_args={"RoleSessionName": _ROLE_SESSION},
        )
        fetch = source.fetch_credentials
        session._credentials = DeferredRefreshableCredentials(fetch, "assume-role")  # noqa: SLF001 (no other way to ones that renew themselves)
    return session


_ABREAST: Final = 10  # requests, as many as botocore's client has connections for
_DROPPED_AT_ONCE: Final = 1000  # what one request may name


class S3Objects:
    """Texts of tasks as objects of one bucket; *prefix* is empty or ends with a slash."""

    def __init__(self, client: AwsClient, bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix
        self._pool = ThreadPoolExecutor(_ABREAST, "objects")

    def unused(self) -> bool:
        """Tell that nobody knows without asking."""
        return False

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write objects abreast; S3 encrypts them as the bucket says."""
        self._abreast(self._put, list(contents.items()))

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return those of the objects that exist, fetched abreast."""
        found = self._abreast(self._get, list(names))
        pairs = zip(names, found, strict=True)
        return {name: content for name, content in pairs if content is not None}

    def drop(self, names: Collection[str]) -> None:
        """Remove objects, a thousand with a request."""
        keys = [{"Key": self._prefix + name} for name in names]
        with _object_errors():
            for start in range(0, len(keys), _DROPPED_AT_ONCE):
                some = {"Objects": keys[start : start + _DROPPED_AT_ONCE], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=some)
                for error in answer.get("Errors", ()):
                    message = f"payloads cannot be removed: {error.get('Code')}"
                    raise Unavailable(message)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return how large those of the objects are that exist, asked for abreast."""
        found = self._abreast(self._size, list(names)) if names else ()
        pairs = zip(names, found, strict=True)
        return {name: size for name, size in pairs if size is not None}

    def door(self) -> "S3Objects":
        """Return these: S3 lets in whoever has a URL that was signed for it."""
        return self

    def upload_url(self, upload: Upload, seconds: int) -> tuple[str, Mapping[str, str]]:
        """Return where to PUT an object; S3 refuses what has another size or digest."""
        digest = b64encode(bytes.fromhex(upload.sha256)).decode()
        asked = {"ContentLength": upload.bytes, "ChecksumSHA256": digest}
        with _object_errors():
            url: str = self._client.generate_presigned_url(
                "put_object", {**self._at(upload.name), **asked}, ExpiresIn=seconds
            )
        return url, {"Content-Length": str(upload.bytes), "x-amz-checksum-sha256": digest}

    def download_url(self, name: str, seconds: int) -> str:
        """Return where to GET an object."""
        with _object_errors():
            url: str = self._client.generate_presigned_url(
                "get_object", self._at(name), ExpiresIn=seconds
            )
        return url

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def _size(self, name: str) -> int | None:
        try:
            size: int = self._client.head_object(**self._at(name))["ContentLength"]
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                return None
            raise
        return size

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return up to *limit* objects, at most 1,000, by name."""
        behind = {"StartAfter": self._prefix + after} if after else {}
        with _object_errors():
            answer = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix, MaxKeys=limit, **behind
            )
        return [
            StoredObject(one["Key"].removeprefix(self._prefix), one["LastModified"])
            for one in answer.get("Contents", ())
        ]

    def _put(self, one: tuple[str, bytes]) -> None:
        name, content = one
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def _get(self, name: str) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                return None
            raise
        content: bytes = answer["Body"].read()
        return content

    def _abreast(self, work: Callable[[_One], _Made], given: Sequence[_One]) -> Sequence[_Made]:
        """Do *work* for each of *given*; whoever has one has it done here."""
        with _object_errors():
            if len(given) == 1:
                return [work(given[0])]
            begun = [self._pool.submit(copy_context().run, work, one) for one in given]
            return [one.result() for one in begun]


def objects_in_s3(bucket: str, prefix: str, session: Session | None = None) -> S3Objects:
    """Return the texts under *prefix* of *bucket*, as lake_in_s3() does a lake."""
    return S3Objects(client_of("s3", session, signature_version="s3v4"), bucket, prefix)


def client_of(
    service: str,
    session: Session | None = None,
    url: str | None = None,
    **more: Any,  # noqa: ANN401  botocore's settings
) -> AwsClient:
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
        message = f"{unreachable or refused}: {no_answer(error)}"
        raise Unavailable(message) from error


def no_answer(error: BotoCoreError) -> str:
    """Say what came in place of an answer; where nothing listens, also what to check."""
    kind = type(error).__name__
    url = error.kwargs.get("endpoint_url")
    if not url or not isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return kind
    check = "the network, and the region"
    if not _AMAZONS.search(url):
        check = "whether it is started, and HEADRACE_DYNAMODB_URL or AWS_ENDPOINT_URL its address"
    return f"{kind}: nothing answers at {url}; check {check}"


_object_errors: Final = partial(
    _vendor_errors,
    "the store of payloads does not answer",
    "the store of payloads cannot be reached",
    broken=_BROKEN,
)
_lake_errors: Final = partial(
    _vendor_errors, "the lake does not answer", "the lake cannot be reached", broken=_BROKEN
)
