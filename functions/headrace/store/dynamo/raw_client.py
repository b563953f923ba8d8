"""The most frequent calls of DynamoDB, without most of boto3.

Most of the CPU of a call in boto3 goes into checks and translations of parameters that already are
DynamoDB's JSON; that is more CPU than the rest of handling a task.  These calls send the JSON,
signed by botocore.  boto3 repeats each call whose answer is not a plain 200, because it knows
retries, throttling and the names of errors.  A write that took effect and is repeated is recognized
as after any lost answer.
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

# Used when the fast call did not work.
_METHODS: Final = {
    "BatchExecuteStatement": "batch_execute_statement",
    "BatchGetItem": "batch_get_item",
    "GetItem": "get_item",
    "Query": "query",
    "Scan": "scan",
}

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RawClient:
    """A boto3 DynamoDB client with fast versions of its most frequent calls.

    boto3 makes every call if there are no credentials, because it explains that, and if the
    environment names a proxy, because it can use proxies.
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

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any member of the client)
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
        """Return the answer to *operation* as JSON that is not decoded."""
        answer = self._posted(operation, parameters)
        if answer is not None:
            return answer
        return _encode(self._boto3s(operation, parameters)).encode("utf-8", "surrogatepass")

    def date(self) -> datetime | None:
        """Return the time by the clock of the service, to the second; None if it is not known."""
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
        # Looked up late: the client may be made when it is first used.
        return getattr(self._client, _METHODS[operation])(**parameters)

    def _posted(self, operation: str, parameters: dict[str, Any]) -> bytes | None:
        """Return the body of a plain 200, or None if boto3 has to repeat the call.

        Raises Unavailable if there is no time left for a request.
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
