"""A lake in S3: the one module that knows botocore's S3."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.store.base import LakeObject
from headrace.store.services import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS, mind_time

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
        with _vendor_errors():
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is none."""
        with _vendor_errors():
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
        with _vendor_errors():
            return sorted(self._list(prefix))

    def _list(self, prefix: str) -> Iterator[LakeObject]:
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
            for one in page.get("Contents", ()):
                name = one["Key"].removeprefix(self.prefix)
                yield LakeObject(name, one["Size"], one["ETag"])


def connected(bucket: str, prefix: str) -> S3Lake:
    """Return the lake under *prefix* of *bucket*, credentials and region as AWS SDKs find them.

    AWS_ENDPOINT_URL_S3 names another S3.
    """
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries)
    client = Session().create_client("s3", config=config)
    mind_time(client)
    return S3Lake(client, bucket, prefix)


@contextmanager
def _vendor_errors() -> Iterator[None]:
    """Turn what botocore raises when S3 is slow or away into Unavailable.

    What only a wrong deployment can cause passes through.
    """
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _BROKEN:
            raise
        message = f"the lake does not answer: {code}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"the lake cannot be reached: {type(error).__name__}"
        raise Unavailable(message) from error
