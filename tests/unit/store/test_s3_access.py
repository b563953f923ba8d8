"""A bucket that is read as another role, in another region, at another S3."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from urllib.parse import parse_qs

import pytest
from botocore.session import Session

from headrace.store.lake import S3Access
from headrace.store.services import lake_in_s3

ROLE = "arn:aws:iam::123456789012:role/reader"
ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>ASIAFORAWHILE</AccessKeyId>
<SecretAccessKey>for a while</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""


class Sts(BaseHTTPRequestHandler):
    """A service that lets everybody be any role."""

    roles: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.roles.extend(asked["RoleArn"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Say nothing."""


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Sts]]:
    server = HTTPServer(("127.0.0.1", 0), Sts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
    yield Sts
    server.shutdown()
    server.server_close()
    Sts.roles.clear()


def test_credentials_of_a_role_stay_in_the_process_that_reads(sts: type[Sts]) -> None:
    session = Session()
    session.set_credentials("AKIAOURS", "ours")
    before = dict(os.environ)

    lake = lake_in_s3("bucket", "", session, S3Access(ROLE, "eu-north-1", "http://s3.test:9000"))
    keys = lake.client._request_signer._credentials.get_frozen_credentials()  # noqa: SLF001 (nobody else tells)

    assert (sts.roles, keys.access_key) == ([ROLE], "ASIAFORAWHILE")
    assert lake.client.meta.endpoint_url == "http://s3.test:9000"
    assert lake.client.meta.region_name == "eu-north-1"
    assert dict(os.environ) == before


def test_without_a_role_it_is_read_as_the_process_is_signed_in(sts: type[Sts]) -> None:
    session = Session()
    session.set_credentials("AKIAOURS", "ours")

    lake = lake_in_s3("bucket", "", session, S3Access(region="eu-north-1"))
    keys = lake.client._request_signer._credentials.get_frozen_credentials()  # noqa: SLF001 (likewise)

    assert (sts.roles, keys.access_key) == ([], "AKIAOURS")
    assert lake.client.meta.endpoint_url.endswith("eu-north-1.amazonaws.com")
