"""One call with many reports, of which a bad one must not cost the others."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.client.models import Reported
from headrace.client.sending import Failure, Report
from headrace.client.worker.service import WorkerService
from headrace.domain.errors import Forbidden, InvalidRequest

Refused: TypeAlias = InvalidRequest | Forbidden
Instead: TypeAlias = Callable[[Report, Refused], Report | None]

_NAMED: Final = re.compile(r"reports\[(\d+)\]")


def send_each(
    service: WorkerService,
    queue: str,
    reports: Sequence[Report],
    instead: Instead,
    *,
    within: float,
    replaced: Collection[tuple[str, str]] = (),
) -> list[Reported | None]:
    """Send up to 25 *reports* and return one result each; None where there was nothing to send.

    The ones that the service (or the codec) refuses are replaced by what *instead* says, each
    once (*replaced* are the tasks and leases of those that were), and the others sent without them.

    Raises what else goes wrong; Forbidden if the key may not report on tasks of this queue.
    """
    refused: Refused
    try:
        return list(service.report(queue, reports, within=within))
    except InvalidRequest as error:
        refused, named = error, _named(error, len(reports))
    except Forbidden as error:
        refused, named = error, {place for place, each in enumerate(reports) if _reaches_out(each)}
        if not named:
            raise
    places = range(len(reports))
    mended = dict(enumerate(reports))
    if len(reports) > 1 and isinstance(refused, Forbidden):  # which one it is it does not say
        parts = [[place for place in places if place not in named], *([place] for place in named)]
    elif not named:  # too large together, or a refusal that names none of them
        parts = [[place] for place in places]
    else:
        for place in named:
            report = mended.pop(place)
            instead_of_it = None if _which(report) in replaced else instead(report, refused)
            if instead_of_it is not None:
                mended[place] = instead_of_it
        replaced = {*replaced, *(_which(reports[place]) for place in named)}
        parts = [sorted(mended)]
    results: list[Reported | None] = [None] * len(reports)
    for part in filter(None, parts):
        again = [mended[place] for place in part]
        sent = send_each(service, queue, again, instead, within=within, replaced=replaced)
        for place, result in zip(part, sent, strict=True):
            results[place] = result
    return results


def _which(report: Report) -> tuple[str, str]:
    return report.task_id, report.lease_id


def _named(refused: InvalidRequest, count: int) -> set[int]:
    """Return the places, of *count*, that *refused* is about."""
    if count == 1:
        return {0}
    named = {int(place) for field in refused.errors for place in _NAMED.findall(field.field)}
    return named & set(range(count))


def _reaches_out(report: Report) -> bool:
    """Whether it asks for something in another queue, which a key may not reach."""
    return report.status == "MOVED" or bool(report.spawn)


def failure_instead(report: Report, refused: Refused) -> Report | None:
    """The report that a task failed, in place of one that cannot be taken: it would fail again."""
    if report.status in {"RELEASED", "INFLIGHT"}:
        return None
    problems = "; ".join(f"{field.field} {field.message}" for field in refused.errors)
    error = Failure(type(refused).__name__, f"its report was refused: {problems or refused.detail}")
    return Report(
        task_id=report.task_id,
        lease_id=report.lease_id,
        status="FAILED",
        error=error,
        retryable=False,
    )


def without_progress(report: Report, _refused: Refused) -> Report | None:
    """Keep the lease of a task whose progress cannot be taken."""
    return None if report.progress is None else replace(report, progress=None)
