"""The proof: whether the history of every task is one that the lifecycle allows."""

from headrace.domain.access import Permission, not_this_queue
from headrace.history.proof import FINDINGS, Finding, ProofReport

from .. import formatting, urls
from ..cells import Id
from ..pages import Page
from ..parts import Empty, Fact
from ..request_context import RequestContext
from ..routes import Reply, routes
from .columns import Column, Columns, numbers, table
from .navigation import queue_link, task_url


@routes.get(urls.PROOF, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show the last report; it is of all queues, so it takes a key for all."""
    if not context.by.covers_all_queues:
        raise not_this_queue("*")
    report = context.use.proofs.latest()
    empty = Empty(
        "No proof has run yet. It checks that the lifecycle allows every recorded change.",
        "headrace lake rollup && headrace lake proof",
    )
    if report is None:
        return Page("proof.html", title="Proof", report=None, empty=empty)
    columns: Columns[Finding] = {
        "task": Column("Task", cell=lambda one: Id(one.task_id, task_url(context, one.task_id))),
        "queue": Column("Queue", cell=lambda one: queue_link(context, one.queue)),
        "version": numbers("Version", lambda one: one.version),
        "move": Column("Move", cell=lambda one: one.move),
        "at": Column("When", cell=lambda one: one.at),
        "seen": Column("Seen", cell=lambda one: one.detail, wide=True),
    }
    return Page(
        "proof.html",
        title="Proof",
        report=report,
        verdict=_verdict(report),
        facts=_facts(report),
        kinds=tuple(
            (
                kind.replace("_", " "),
                number,
                FINDINGS.get(kind, ""),
                table(f"findings: {kind}", columns, report.examples.get(kind, ())),
            )
            for kind, number in report.violations.items()
        ),
    )


def _verdict(report: ProofReport) -> str:
    if report.violations:
        number = sum(report.violations.values())
        return f"{formatting.count_of(number, 'change')} that the lifecycle does not allow."
    if report.first is None:
        return "No changes were recorded."
    return "No findings: the lifecycle allows every recorded change."


def _facts(report: ProofReport) -> tuple[Fact, ...]:
    wanted = f"changes since {report.since}" if report.since else "all changes"
    lost = "checked" if report.live else "not checked: the job did not get the live tasks"
    return (
        Fact("Made", "" if report.made_at else "time unknown", at=report.made_at),
        Fact("Checked", wanted),
        Fact("First change", "" if report.first else "none", at=report.first),
        Fact("Last change", "" if report.last else "none", at=report.last),
        Fact("Tasks", formatting.number(report.tasks)),
        Fact("Changes", formatting.number(report.changes)),
        Fact("Lost tasks", lost),
    )
