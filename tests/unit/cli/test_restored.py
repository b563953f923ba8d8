"""`headrace key restored`: what a restore has done to keys, told by the audit of before."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.session import CliSession
from tests.unit.cli.cli_runner import Ran, invoke


class Restore:
    """A service in a file that is backed up, used, and restored."""

    def __init__(self, folder: Path) -> None:
        self.file, self.copy, self.audit = folder / "h.db", folder / "copy.db", folder / "audit"
        self.keys = {name: self.make(name) for name in ("stays", "revoked", "rotated")}
        self.run("backup", str(self.copy))
        self.at = datetime.now(UTC).isoformat()

    def run(self, *words: str) -> Ran:
        return invoke(*words, session=CliSession(env={"HEADRACE_URL": f"file:{self.file}"}))

    def make(self, name: str) -> Any:
        return self.run("key", "create", name, "--role", "viewer", "--queue", "*", "--json").json

    def restore(self) -> None:
        self.audit.write_text(self.run("audit", "list", "--since", self.at, "--json").out)
        self.file = self.copy

    def restored(self, *words: str) -> Ran:
        return self.run("key", "restored", self.at, *words)


@pytest.fixture
def service(tmp_path: Path) -> Restore:
    return Restore(tmp_path)


def test_keys_that_work_again_are_named_with_what_had_happened_to_them(service: Restore) -> None:
    service.run("key", "revoke", service.keys["revoked"]["id"], "--yes")
    service.run("key", "rotate", service.keys["rotated"]["id"])
    service.make("made")
    service.restore()
    audit = ("--audit", str(service.audit))

    ran = service.restored(*audit, "--json")

    assert ran.code == 1
    assert {(one["name"], one["happened"]) for one in ran.json} == {
        ("revoked", "revoked"),
        ("rotated", "rotated"),
        ("made", "made"),
    }
    assert "1 revoked key will be let in again: --revoke ends that." in ran.err
    assert service.restored(*audit, "--revoke").code == 2  # no terminal to ask at
    assert service.restored(*audit, "--revoke", "--yes").code == 1  # the rotated key is left
    left = {key["name"] for key in service.run("key", "list", "--json").json}
    assert left == {"stays", "rotated"}
