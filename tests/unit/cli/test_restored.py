"""`headrace key restored`: what a restore has done to keys, told by the audit of before."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.errors import Unauthenticated
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran

THEN = "2026-11-21T08:01:00Z"


@dataclass
class Restore:
    """A service that was backed up a minute after its start, and has gone on since."""

    cli: Cli
    secrets: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    records: Any = None

    def make(self, name: str, *more: str) -> None:
        ran = self.cli("key", "create", name, "--role", "viewer", "--queue", "*", "--json", *more)
        self.secrets[name], self.ids[name] = ran.json["secret"], ran.json["id"]

    def rotate(self, name: str) -> None:
        self.secrets[name] = self.cli("key", "rotate", self.ids[name]).out.strip()

    def back_up(self) -> None:
        self.cli.service.clock.forward(60)
        self.records = deepcopy(self.cli.service.store._records)  # noqa: SLF001  what a backup holds
        self.cli.service.clock.forward(60)

    def restore(self) -> None:
        self.cli.service.store._records = deepcopy(self.records)  # noqa: SLF001  likewise
        self.cli.service.clock.forward(60)

    def lets_in(self, secret: str) -> bool:
        try:
            list(self.cli.service.connect(secret).list_queues())
        except Unauthenticated:
            return False
        return True


@pytest.fixture
def before(headrace_service: MemoryService) -> Restore:
    made = Restore(Cli(headrace_service))
    for name in ("stays", "revoked", "rotated"):
        made.make(name)
    made.make("expires", "--expires-in", "90s")
    made.back_up()
    return made


@pytest.fixture
def changed(before: Restore, tmp_path: Path) -> Callable[..., Ran]:
    """Let keys change after the backup, restore it, and return the command with their audit."""
    was = dict(before.secrets)
    before.cli("key", "revoke", before.ids["revoked"], "--yes")
    before.rotate("rotated")
    before.make("made")
    before.rotate("made")
    before.make("came and went")
    before.cli("key", "revoke", before.ids["came and went"], "--yes")
    audit = tmp_path / "since.ndjson"
    audit.write_text(before.cli("audit", "list", "--since", THEN, "--json").out)
    before.restore()
    assert before.lets_in(was["revoked"])  # which is the trouble
    assert before.lets_in(was["rotated"])
    assert not before.lets_in(before.secrets["rotated"])

    def command(*more: str) -> Ran:
        return before.cli("key", "restored", THEN, "--audit", str(audit), *more)

    return command


def test_keys_that_work_again_are_named_with_what_had_happened_to_them(
    before: Restore, changed: Callable[..., Ran]
) -> None:
    ran = changed("--json")

    assert {(one["name"], one["happened"]) for one in ran.json} == {
        ("revoked", "revoked"),
        ("rotated", "rotated"),
        ("made", "made"),
    }
    assert {one["id"] for one in ran.json} == {
        before.ids[name] for name in ("revoked", "rotated", "made")
    }
    assert {one["by"] for one in ran.json} == {"bootstrap"}
    assert ran.code == 1
    for message in (
        "The audit given goes on to 2026-11-21T08:02:0",
        "1 revoked key will be let in again: --revoke ends that.",
        "1 rotated key: a secret of before works again",
        "1 key made since: gone",
    ):
        assert message in ran.err
    assert "revoked  " in changed().out


def test_those_that_were_revoked_are_revoked_again(
    before: Restore, changed: Callable[..., Ran]
) -> None:
    assert changed("--revoke").code == 2  # nobody is there to be asked
    assert changed("--revoke", "--yes").code == 1  # the rotated one is left
    assert not before.lets_in(before.secrets["revoked"])
    assert before.lets_in(before.secrets["stays"])

    before.rotate("rotated")
    left = changed("--json")
    assert {one["name"] for one in left.json} == {"rotated", "made"}


def test_without_the_audit_of_before_every_key_may_be_one(before: Restore) -> None:
    before.cli("key", "revoke", before.ids["revoked"], "--yes")
    before.restore()

    ran = before.cli("key", "restored", THEN, "--json")

    assert {one["name"] for one in ran.json} == {"stays", "revoked", "rotated"}
    assert {one["happened"] for one in ran.json} == {"unknown"}
    assert ran.code == 1
    assert "3 keys may have been revoked or rotated since: without --audit nobody knows" in ran.err


def test_nothing_is_wrong_where_nothing_happened(before: Restore, tmp_path: Path) -> None:
    audit = before.cli("audit", "list", "--json").out
    before.restore()

    ran = before.cli("key", "restored", THEN, "--audit", "-", input=audit)

    assert (ran.code, ran.out) == (0, "")
    assert "has nothing since then: is it that of the service from before?" in ran.err


@pytest.mark.parametrize("text", ["no JSON", '{"at": 1}', "[]"])
def test_what_is_no_audit_is_refused(before: Restore, tmp_path: Path, text: str) -> None:
    (tmp_path / "audit").write_text(text)

    for file in (tmp_path / "audit", tmp_path / "nowhere"):
        ran = before.cli("key", "restored", THEN, "--audit", str(file))
        assert ran.code == 2
        assert f"--audit {file}: " in ran.error
