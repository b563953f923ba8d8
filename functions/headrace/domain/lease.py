"""How a lease is shown to the worker that holds it.

The name is the lease's secret and two facts about the delivery, the attempt and the worker.  They
save a read when the worker reports: the write checks that they are true, so a name that was
tampered with is refused like any other foreign lease.

A lease under a group goes by the group's id alone, as long as that can mean one delivery only.  A
task that came back to wait since the group was opened may have been under it before, and whoever
had it then knows it by that id: so the next delivery is shown with its whole name, and by the
group's id nothing happens to it.
"""

import base64
import binascii
from dataclasses import dataclass

from headrace.domain.group import group_of, opened_at, settled_under
from headrace.domain.task import Task

_ATTEMPT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class LeaseName:
    """A lease as its worker names it."""

    secret: str
    attempt: int
    worker: str | None = None

    def __str__(self) -> str:
        worker = base64.urlsafe_b64encode((self.worker or "").encode()).decode().rstrip("=")
        return f"{self.secret}.{self.attempt}.{worker}"

    @classmethod
    def of(cls, task: Task) -> "LeaseName":
        """Return the name of the lease *task* is under."""
        return cls(task.lease_id or "", task.attempts, task.worker)

    @classmethod
    def parse(cls, name: str) -> "LeaseName | None":
        """Return *name* as parsed; None when we did not write it."""
        secret, _, rest = name.partition(".")
        attempt, _, worker = rest.partition(".")
        if not (secret and attempt.isascii() and attempt.isdigit()):
            return None
        if len(attempt) > _ATTEMPT_DIGITS:
            return None
        try:
            padded = worker + "=" * (-len(worker) % 4)
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        except (ValueError, binascii.Error):
            return None
        parsed = cls(secret, int(attempt), text or None)
        return parsed if str(parsed) == name else None  # one lease has one name


def shown_lease(task: Task) -> str:
    """Return the name of its lease that the worker of *task* is given."""
    group = group_of(task.lease_id)
    return str(LeaseName.of(task)) if group is None or _was_under(group, task) else group


def _was_under(group: str, task: Task) -> bool:
    """Tell whether *task* may have been delivered under *group* before the present delivery."""
    returned = task.returned_at is not None and task.returned_at > opened_at(group)
    return returned or settled_under(group, task.settled_lease_id)


def names_lease(name: str, task: Task) -> bool:
    """Tell whether *name* means the lease that *task* is under; a whole name always may."""
    return name in (shown_lease(task), str(LeaseName.of(task)))
