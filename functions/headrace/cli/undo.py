"""`headrace undo`: what was deleted comes back."""

from collections import Counter

import click

from headrace.cli.commands import CliCommand
from headrace.cli.output import document, many, why_not
from headrace.cli.session import CliSession, Exit
from headrace.client.calls.tasks import undo
from headrace.domain.undo import BACK_ALREADY
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
    before = sum(one.detail == BACK_ALREADY for one in results)
    session.note(f"{many(restored, 'task')} back.")
    if before or not results:
        session.note("Nothing else was left to bring back: this undo was done before.")
    left = [one for one in results if one.outcome != "RESTORED" and one.detail != BACK_ALREADY]
    away = Counter(why_not(one) for one in left)
    for why, number in away.most_common():
        session.note(f"{many(number, 'task')} not: {why}.")
    return Exit.FAILED if left else Exit.DONE
