"""`headrace key restored`: which keys a restore has brought back, and which it has taken away.

A restored table knows its keys as they were then.  What has become of them since is in the audit
of the service that it was restored from, as long as that answers, and nowhere else.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from headrace.cli import params
from headrace.cli.commands import CliCommand, yes_option
from headrace.cli.exits import Exit
from headrace.cli.output import answer, many, rows
from headrace.cli.session import CliSession, Failed
from headrace.client.models import AuditEntry, Key

_HAPPENED: Final = {"revoke_key": "revoked", "rotate_key": "rotated", "create_key": "made"}


@dataclass(frozen=True, slots=True)
class Restored:
    """A key that is not as it was before the restore: what had happened to it, when, by whom.

    ``happened`` is ``revoked`` (it works again), ``rotated`` (a secret of before works again, and
    the one after does not), ``made`` (it is gone), or ``unknown``.
    """

    id: str
    name: str
    happened: str
    at: datetime | None = None
    by: str | None = None


@click.command(
    "restored",
    cls=CliCommand,
    example="headrace key restored 2026-11-21T08:00:00Z --audit since.ndjson\n"
    "headrace key restored 2026-11-21T08:00:00Z --audit since.ndjson --revoke --yes",
)
@click.argument("instant", type=params.instant)
@click.option(
    "--audit",
    metavar="FILE",
    help="What `headrace audit list --since INSTANT --json` wrote about the service that it was "
    "restored from; - is stdin.",
)
@click.option("--revoke", is_flag=True, help="Revoke those again that were revoked since.")
@yes_option
@click.pass_obj
def restored_command(
    session: CliSession, instant: datetime, audit: str | None, *, revoke: bool, yes: bool
) -> Exit:
    """Name the keys that work again because the service was restored to INSTANT.

    Without the audit of the service that it was restored from, that can be every key there is.
    Ends with 1 while there are any.
    """
    living = {key.id: key for key in session.client.list_keys() if _works(key, session)}
    if audit is None:
        found = [Restored(key.id, key.name, "unknown") for key in living.values()]
    else:
        entries = list(_entries(audit, instant))
        found = list(_since(entries, living))
        latest = max((entry.at for entry in entries), default=None)
        session.note(
            f"The audit given goes on to {latest:%Y-%m-%dT%H:%M:%SZ}."
            if latest
            else "The audit given has nothing since then: is it that of the service from before?"
        )
    answer(session, found, lambda: _show(found))
    _warn(session, found, known=audit is not None)
    again = [one for one in found if one.happened == "revoked"]
    if revoke and again:
        session.ask(f"{many(len(again), 'key')} will not work any more.", yes=yes)
        for one in again:
            session.client.delete_key(one.id)
            session.note(f"Key {one.id} is revoked.")
        found = [one for one in found if one not in again]
    return Exit.FAILED if any(one.happened != "made" for one in found) else Exit.DONE


def _works(key: Key, session: CliSession) -> bool:
    return key.expires_at is None or key.expires_at > session.now()


def _entries(audit: str, since: datetime) -> Iterator[AuditEntry]:
    """Read the audit, a JSON document a line, from *since* on.  Raises Failed."""
    try:
        text = sys.stdin.read() if audit == "-" else Path(audit).read_text(encoding="utf-8")
        for line in filter(None, map(str.strip, text.splitlines())):
            entry = msgspec.json.decode(line, type=AuditEntry)
            if entry.at >= since:
                yield entry
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        why = getattr(error, "strerror", None) or error
        raise Failed(f"--audit {audit}: {why}", Exit.USAGE) from error


def _since(entries: Iterable[AuditEntry], living: dict[str, Key]) -> Iterator[Restored]:
    """Yield what has become of each key since, by the last that did."""
    last: dict[str, AuditEntry] = {}
    for entry in sorted(entries, key=lambda entry: entry.at):
        if entry.action in _HAPPENED and entry.changed != 0:
            for key_id in entry.ids or ():
                before = last.get(key_id)
                # One that was made and rotated since is not there all the same.
                if entry.action != "rotate_key" or before is None:
                    last[key_id] = entry
    for key_id, entry in last.items():
        happened = _HAPPENED[entry.action]
        if (happened == "made") == (key_id in living):
            continue  # it is there, or not, as it should be
        name = str((entry.filter or {}).get("name", ""))
        yield Restored(key_id, name, happened, entry.at, entry.actor)


def _show(found: Sequence[Restored]) -> None:
    rows(
        ("Key", "Name", "Since then", "At", "By"),
        ((one.id, one.name, one.happened, one.at, one.by) for one in found),
    )


def _warn(session: CliSession, found: Sequence[Restored], *, known: bool) -> None:
    """Say what that means, and what to do about it."""
    happened = [one.happened for one in found]
    if not known and found:
        session.note(
            f"{many(len(found), 'key')} may have been revoked or rotated since: without --audit "
            "nobody knows. Rotate or revoke each that you are not sure of."
        )
    if "revoked" in happened:
        revoked = many(happened.count("revoked"), "revoked key")
        session.note(f"{revoked} will be let in again: --revoke ends that.")
    if "rotated" in happened:
        rotated = many(happened.count("rotated"), "rotated key")
        session.note(
            f"{rotated}: a secret of before works again, the one handed out since does not. "
            "Rotate each once more: `headrace key rotate ID`."
        )
    if "made" in happened:
        made = many(happened.count("made"), "key")
        session.note(f"{made} made since: gone, and whoever has one is refused. Make others.")
