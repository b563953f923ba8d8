"""S3: a lake, and the large texts of tasks."""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cached_property, partial
from typing import Final, TypeVar

from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.domain.offload import LakeObject, StoredObject, Upload
from headrace.store.lake import S3Access
from headrace.store.services import AwsClient, client_of, vendor_errors

_One = TypeVar("_One")
_Made = TypeVar("_Made")

_PIECE: Final = 1024 * 1024
_ROLE_SESSION: Final = "headrace"
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_PAST_THE_END: Final = "InvalidRange"
_BROKEN: Final = frozenset({"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId"})


_object_errors: Final = partial(
    vendor_errors,
    "the store of payloads does not answer",
    "the store of payloads cannot be reached",
    broken=_BROKEN,
)
_lake_errors: Final = partial(
    vendor_errors, "the lake does not answer", "the lake cannot be reached", broken=_BROKEN
)


class S3Lake:
    """The objects of one bucket; *prefix* is empty or ends with a slash.

    Region and credentials are those of *session*, or as *access* says.  The client is made when it
    is first used: most requests need none, and it takes time.  AWS_ENDPOINT_URL_S3 names another
    S3.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        session: Session | None = None,
        access: S3Access | None = None,
    ) -> None:
        self._bucket, self._prefix, self._session, self._access = bucket, prefix, session, access

    @cached_property
    def _client(self) -> AwsClient:
        if self._access is None:
            return client_of("s3", self._session)
        signed_in = _signed_in(self._session or Session(), self._access)
        return client_of("s3", signed_in, self._access.endpoint)

    def put(self, name: str, content: bytes) -> None:
        """Write an object; S3 shows it only when it is whole."""
        with _lake_errors():
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of an object, or its bytes *within* a range; None if it is missing."""
        part = {} if within is None else {"Range": f"bytes={within.start}-{within.stop - 1}"}
        with _lake_errors():
            try:
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=self._prefix + name, **part
                )
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in _MISSING or code == _PAST_THE_END:
                    return None if code in _MISSING else b""
                raise
            content: bytes = answer["Body"].read()
            return content

    @contextmanager
    def pieces(self, name: str) -> Iterator[Iterator[bytes] | None]:
        """Yield the content of an object in pieces, or None if it is missing."""
        with _lake_errors():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
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
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
            for one in page.get("Contents", ()):
                name = one["Key"].removeprefix(self._prefix)
                yield LakeObject(name, one["Size"], one["ETag"])


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
        session._credentials = DeferredRefreshableCredentials(fetch, "assume-role")  # noqa: SLF001 (the only way to credentials that renew themselves)
    return session


_PARALLEL: Final = 10  # requests, as many as botocore's client has connections for
_DROPPED_TOGETHER: Final = 1000  # objects of one request


class S3Objects:
    """Texts of tasks as objects of one bucket; *prefix* is empty or ends with a slash.

    The client is made when it is first used, as that of S3Lake.
    """

    def __init__(self, bucket: str, prefix: str, session: Session | None = None) -> None:
        self._bucket, self._prefix, self._session = bucket, prefix, session
        self._pool = ThreadPoolExecutor(_PARALLEL, "objects")

    @cached_property
    def _client(self) -> AwsClient:
        return client_of("s3", self._session, signature_version="s3v4")

    def unused(self) -> bool:
        """Return False: only a request could tell."""
        return False

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write objects in parallel; S3 encrypts them as the bucket says."""
        self._in_parallel(self._put, list(contents.items()))

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return the objects that exist, fetched in parallel."""
        found = self._in_parallel(self._get, list(names))
        pairs = zip(names, found, strict=True)
        return {name: content for name, content in pairs if content is not None}

    def drop(self, names: Collection[str]) -> None:
        """Remove objects, a thousand with each request."""
        keys = [{"Key": self._prefix + name} for name in names]
        with _object_errors():
            for start in range(0, len(keys), _DROPPED_TOGETHER):
                some = {"Objects": keys[start : start + _DROPPED_TOGETHER], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=some)
                for error in answer.get("Errors", ()):
                    message = f"payloads cannot be removed: {error.get('Code')}"
                    raise Unavailable(message)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the sizes of the objects that exist, requested in parallel."""
        found = self._in_parallel(self._size, list(names)) if names else ()
        pairs = zip(names, found, strict=True)
        return {name: size for name, size in pairs if size is not None}

    def door(self) -> "S3Objects":
        """Return itself: S3 admits every caller that has a signed URL."""
        return self

    def upload_url(self, upload: Upload, seconds: int) -> tuple[str, Mapping[str, str]]:
        """Return the URL to PUT an object; S3 refuses another size or digest."""
        digest = b64encode(bytes.fromhex(upload.sha256)).decode()
        required = {"ContentLength": upload.bytes, "ChecksumSHA256": digest}
        with _object_errors():
            url: str = self._client.generate_presigned_url(
                "put_object", {**self._at(upload.name), **required}, ExpiresIn=seconds
            )
        return url, {"Content-Length": str(upload.bytes), "x-amz-checksum-sha256": digest}

    def download_url(self, name: str, seconds: int) -> str:
        """Return the URL to GET an object."""
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

    def _in_parallel(self, work: Callable[[_One], _Made], given: Sequence[_One]) -> Sequence[_Made]:
        """Do *work* for each of *given* in threads, or in this thread for only one."""
        with _object_errors():
            if len(given) == 1:
                return [work(given[0])]
            begun = [self._pool.submit(copy_context().run, work, one) for one in given]
            return [one.result() for one in begun]
