"""A deployment's tables for a service: what it takes on the machine of the program."""

import sys

import pytest

from headrace import AsyncClient, Client
from headrace.domain.errors import InvalidRequest


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_without_botocore_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, client: type[Client | AsyncClient]
) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(InvalidRequest, match=r"\(botocore\): pip install 'headrace\[dynamodb\]'"):
        client("dynamodb://eu-west-1/headrace-prod")
