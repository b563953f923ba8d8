"""`headrace smoke` against the deployed stack, through its API Gateway at a custom domain."""

import os
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from headrace.cli.session import CliSession
from tests.unit.cli.cli_runner import invoke

pytestmark = pytest.mark.gate


class _ByName(httpx.BaseTransport):
    """Takes requests for any name to where the emulator listens, as DNS and TLS would."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = urlsplit(endpoint)
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        to = self._endpoint
        request.url = request.url.copy_with(scheme=to.scheme, host=to.hostname, port=to.port)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def test_the_deployed_stack_is_sound() -> None:
    session = CliSession(
        env={
            "HEADRACE_URL": f"https://{os.environ['HEADRACE_HOST']}",
            "HEADRACE_KEY": os.environ["HEADRACE_KEY"],
        },
        transport=_ByName(os.environ["HEADRACE_URL"]),
    )

    ran = invoke("smoke", "--json", session=session)

    assert ran.out, ran.err
    assert [row for row in ran.json["checks"] if row["outcome"] != "ok"] == []
    assert (ran.code, ran.json["left_behind"]) == (0, [])
