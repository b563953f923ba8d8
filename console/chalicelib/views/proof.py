"""The proof: whether the history of every task is one that the lifecycle allows."""

from dataclasses import dataclass

from headrace.domain.access import Permission, not_this_queue
from headrace.history.proof import FINDINGS, Finding, ProofReport

from .. import formatting, urls
from ..pages import TemplatePage
from ..parts import Empty, Fact, Link
from ..request_context import RequestContext
from ..routes import Reply, routes
from .navigation import queue_link, task_url


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One change, with links to its task and queue."""

    finding: Finding
    task: Link
    queue: Link


@dataclass(frozen=True, slots=True)
class Kind:
    """Findings of one kind: how many, what it means, and the first of them."""

    name: str
    number: int
    says: str
    rows: tuple[FindingRow, ...]


@routes.get(urls.PROOF, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show the last report; it is of all queues, so it takes a key for all."""
    if not context.by.covers_all_queues:
        raise not_this_queue("*")
    report = context.use.proofs.latest()
    if report is None:
        return TemplatePage(
            "proof.html",
            title="Proof",
            verdict="",
            holds=False,
            facts=(),
            kinds=(),
            empty=Empty(
                "No proof has run yet. It checks that the lifecycle allows every recorded change.",
                "headrace lake rollup && headrace lake proof",
            ),
        )
    return TemplatePage(
        "proof.html",
        title="Proof",
        verdict=_verdict(report),
        holds=not report.violations,
        facts=_facts(report),
        kinds=tuple(
            Kind(
                kind.replace("_", " "),
                number,
                FINDINGS.get(kind, ""),
                tuple(_row(context, one) for one in report.examples.get(kind, ())),
            )
            for kind, number in report.violations.items()
        ),
        empty=None,
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


def _row(context: RequestContext, one: Finding) -> FindingRow:
    task = Link(one.task_id, task_url(context, one.task_id))
    return FindingRow(one, task, queue_link(context, one.queue))
