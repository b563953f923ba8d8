"""One call with many reports, of which a bad one must not cost the others."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.client.models import Reported
from headrace.client.sending import Failure, Report
from headrace.client.worker.service import Service
from headrace.domain.errors import InvalidRequest

Instead: TypeAlias = Callable[[Report, InvalidRequest], Report | None]

_NAMED: Final = re.compile(r"reports\[(\d+)\]")


def send_each(
    service: Service,
    queue: str,
    reports: Sequence[Report],
    instead: Instead,
    *,
    within: float,
) -> list[Reported | None]:
    """Send up to 25 *reports* and return one result each; None where there was nothing to send.

    The ones that the service (or the codec) refuses are replaced by what *instead* says, and the
    others sent without them.  Raises what else goes wrong.
    """
    try:
        return list(service.report(queue, reports, within=within))
    except InvalidRequest as error:
        refused = error
    named = {int(place) for field in refused.errors for place in _NAMED.findall(field.field)}
    if len(reports) == 1:
        named = {0}
    if not named:  # too large together, or a refusal that names none of them
        return [
            send_each(service, queue, [report], instead, within=within)[0] for report in reports
        ]
    mended = [
        (place, report)
        for place, given in enumerate(reports)
        if (report := instead(given, refused) if place in named else given) is not None
    ]
    results: list[Reported | None] = [None] * len(reports)
    if mended:
        again = send_each(service, queue, [report for _, report in mended], nothing, within=within)
        for (place, _), result in zip(mended, again, strict=True):
            results[place] = result
    return results


def nothing(_report: Report, _refused: InvalidRequest) -> None:
    """Send nothing in place of a report that was refused twice."""


def failure_instead(report: Report, refused: InvalidRequest) -> Report | None:
    """Say of a task whose report cannot be taken that it failed, and why: it would again."""
    if report.status in {"RELEASED", "INFLIGHT"}:
        return None
    said = "; ".join(f"{field.field} {field.message}" for field in refused.errors)
    error = Failure(type(refused).__name__, f"its report was refused: {said or refused.detail}")
    return Report(
        task_id=report.task_id,
        lease_id=report.lease_id,
        status="FAILED",
        error=error,
        retryable=False,
    )


def without_progress(report: Report, _refused: InvalidRequest) -> Report | None:
    """Keep the lease of a task whose progress cannot be taken."""
    return None if report.progress is None else replace(report, progress=None)
