"""A deployment's tables for a service: what it takes on the machine of the program."""

import sys

import pytest

from headrace import AsyncClient, Client
from headrace.client.address import TablesAddress
from headrace.domain.access import Role, key_name_fault
from headrace.domain.errors import InvalidRequest
from headrace.embedded.tables import over_tables


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_without_botocore_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, client: type[Client | AsyncClient]
) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(InvalidRequest, match=r"^url .*: pip install 'headrace\[dynamodb\]'$"):
        client("dynamodb://eu-west-1/headrace-prod")


def test_the_audit_knows_who_comes_by_iam_rights_apart_from_the_deployments_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TASKS_TABLE": "t", "CONTROL_TABLE": "c"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    monkeypatch.setenv("HEADRACE_DYNAMODB_URL", "http://127.0.0.1:9")  # and nobody asks it
    use, _ = over_tables(TablesAddress("eu-west-1", "headrace-prod"), admin_key="here")
    caller = use.keys.verify("here")

    assert (caller.name, caller.key_id, caller.role) == ("iam", "iam", Role.ADMIN)
    assert key_name_fault("IAM") == "is the name of callers with IAM rights"
