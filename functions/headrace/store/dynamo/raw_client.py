"""The calls that every task takes, on a short way to DynamoDB.

Most of what boto3 does with a call is to check and translate parameters that are DynamoDB's JSON
already: measured here, more CPU than all the rest of handling a task.  These calls go out as that
JSON, signed by botocore.  Whatever does not come back as a plain 200 is asked again of boto3, which
knows about retries, throttling and the names of errors: a write that took effect and is repeated is
recognised as with any lost answer.
"""

import json
from datetime import datetime
from typing import Any, Final

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from headrace.store.services import CONNECT_SECONDS, READ_SECONDS, AwsClient, check_time

_TARGET: Final = "DynamoDB_20120810."
_OK: Final = 200
CONNECTIONS: Final = 50

# Used when the short way did not work.
_METHODS: Final = {
    "BatchExecuteStatement": "batch_execute_statement",
    "BatchGetItem": "batch_get_item",
    "GetItem": "get_item",
    "Query": "query",
    "Scan": "scan",
}

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RawClient:
    """A boto3 DynamoDB client whose most used calls are quick; all others are boto3's own.

    Every call is left to boto3 where there are no credentials, which it will say, and where the
    environment names a proxy, which it knows how to use.
    """

    def __init__(self, client: AwsClient, credentials: Credentials | None) -> None:
        self._client = client
        self._url: str = client.meta.endpoint_url.rstrip("/") + "/"
        self._credentials = None if get_environ_proxies(self._url) else credentials
        self._region: str = client.meta.region_name
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            cert_reqs="CERT_REQUIRED",
            ca_certs=get_cert_path(verify=True),
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever boto3 has)
        return getattr(self._client, name)

    def batch_execute_statement(self, **parameters: object) -> dict[str, Any]:
        """Do as boto3's method of this name."""
        return self._call("BatchExecuteStatement", parameters)

    def query(self, **parameters: object) -> dict[str, Any]:
        """Do as boto3's method of this name."""
        return self._call("Query", parameters)

    def get_item(self, **parameters: object) -> dict[str, Any]:
        """Do as boto3's method of this name."""
        return self._call("GetItem", parameters)

    def batch_get_item(self, **parameters: object) -> dict[str, Any]:
        """Do as boto3's method of this name."""
        return self._call("BatchGetItem", parameters)

    def page(self, operation: str, parameters: dict[str, Any]) -> bytes:
        """Return DynamoDB's answer to *operation* as it is: JSON that nobody has looked at."""
        answer = self._posted(operation, parameters)
        if answer is not None:
            return answer
        return _encode(self._boto3s(operation, parameters)).encode("utf-8", "surrogatepass")

    def date(self) -> datetime | None:
        """Return the time by the service's clock, to the second; None where it does not say."""
        from email.utils import parsedate_to_datetime  # noqa: PLC0415  no function needs it

        try:
            response = self._pool.request("GET", self._url)
            return parsedate_to_datetime(response.headers["Date"])
        except (urllib3.exceptions.HTTPError, KeyError, ValueError):
            return None

    def _call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        text = self._posted(operation, parameters)
        answer: dict[str, Any] = (
            self._boto3s(operation, parameters) if text is None else json.loads(text)
        )
        return answer

    def _boto3s(self, operation: str, parameters: dict[str, Any]) -> Any:  # noqa: ANN401 (boto3's)
        # Looked up only now: the client may be one that is made when it is first used.
        return getattr(self._client, _METHODS[operation])(**parameters)

    def _posted(self, operation: str, parameters: dict[str, Any]) -> bytes | None:
        """Return the body of a plain 200; None for boto3 to ask again.

        Raises Unavailable where there is no time left to ask at all.
        """
        if self._credentials is None:
            return None
        check_time()
        request = AWSRequest(
            "POST",
            self._url,
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": _TARGET + operation,
            },
            data=_encode(parameters).encode("utf-8", "surrogatepass"),
        )
        self.sign(request, self._credentials)
        try:
            response = self._pool.request(
                "POST", self._url, body=request.data, headers=dict(request.headers)
            )
        except urllib3.exceptions.HTTPError:
            return None
        return response.data if response.status == _OK else None

    def sign(self, request: AWSRequest, credentials: Credentials) -> None:
        keys = credentials.get_frozen_credentials()  # botocore renews there what expires
        SigV4Auth(keys, "dynamodb", self._region).add_auth(request)
