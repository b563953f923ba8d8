"""`headrace undo`: what was deleted comes back."""

from collections import Counter

import click

from headrace.cli.commands import CliCommand
from headrace.cli.output import document, many
from headrace.cli.session import CliSession, Exit
from headrace.client.calls.tasks import undo
from headrace.wire.tasks import BulkResult


@click.command("undo", cls=CliCommand, example="headrace undo und_01kc5m3v0e8x2r7n4q9w6y1z0a")
@click.argument("id")
@click.pass_obj
def undo_command(session: CliSession, id: str) -> Exit:
    """Bring back what was deleted.

    The ID is what `task delete` or `queue purge` has named.  What has lost its id or its dedupe key
    to another task since stays away, and so does what is past its retention.
    """
    results: list[BulkResult] = []
    for page in session.client.answers(undo(id)):
        results += page.results
    restored = sum(one.outcome == "RESTORED" for one in results)
    if session.json:
        document({"matched": len(results), "changed": restored, "results": results})
    session.note(f"{many(restored, 'task')} back.")
    away = Counter(one.detail or one.outcome for one in results if one.outcome != "RESTORED")
    for why, number in away.most_common():
        session.note(f"{many(number, 'task')} not: {why}")
    return Exit.DONE if restored == len(results) else Exit.FAILED
