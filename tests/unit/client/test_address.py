"""One URL says where the service is: a file, HTTP, or the tables of a deployment."""

from pathlib import Path

import pytest

from headrace.client.address import FileAddress, HttpAddress, TablesAddress, read_address
from headrace.domain.errors import InvalidRequest


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_a_file_is_named_in_each_usual_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / "headrace.db"

    assert read_address(form.format(path)) == FileAddress(str(path))


def test_a_relative_file_is_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)

    assert read_address("file:data/tasks.db") == FileAddress(str(tmp_path / "data/tasks.db"))


def test_a_path_is_percent_decoded(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()

    found = read_address(f"file:{tmp_path}/my%20data/a%23b%3f.db")

    assert found == FileAddress(str(tmp_path / "my data" / "a#b?.db"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://elsewhere/tasks.db", "must be a file of this machine, not of 'elsewhere'"),
        ("file:", "must name a file"),
        ("file:/nowhere-at-all/tasks.db", "which is no folder: make it first"),
        ("file:tasks.db?mode=ro", "must be a path alone"),
        ("file:tasks.db\r", r"as 'file:tasks.db\r' has: write them as %20 or %0D"),
        ("file:a%00b", "must name a file"),
        ("dynamodb://us-east-1", "must be dynamodb://REGION/STACK"),
        ("dynamodb://us-east-1/-x", "must name a stack"),
        ("https://user:secret@host", "must hold no user and password"),
    ],
)
def test_what_is_no_address_is_refused_and_why(url: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^url ") as refused:
        read_address(url)

    assert message in refused.value.detail
    assert "secret" not in refused.value.detail


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="which is a folder"):
        read_address(f"file:{tmp_path}")


def test_a_deployment_is_a_region_and_a_stack() -> None:
    found = read_address("dynamodb://eu-central-1/headrace-prod")

    assert found == TablesAddress("eu-central-1", "headrace-prod")


@pytest.mark.parametrize(
    ("url", "local"),
    [("http://127.0.0.1:8080", True), ("http://example.com", False)],
)
def test_http_may_be_near_or_far(url: str, *, local: bool) -> None:
    address = read_address(url)

    assert isinstance(address, HttpAddress)
    assert address.local is local
