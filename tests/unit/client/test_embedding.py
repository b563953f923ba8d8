"""The door to a service in this process, where its libraries are not installed."""

import sys
from pathlib import Path

import pytest

from headrace import Client
from headrace.domain.errors import InvalidRequest


def test_a_file_without_the_services_libraries_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    with pytest.raises(
        InvalidRequest, match=r"^url .* not here \(pydantic\): pip install 'headrace\[file\]'$"
    ) as refused:
        Client(url=f"file:{tmp_path}/headrace.db")

    assert [error.field for error in refused.value.errors] == ["url"]
