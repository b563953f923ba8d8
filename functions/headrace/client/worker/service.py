"""The service as a worker sees it: each call tried once, because each loop has its own backoff."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from headrace.client.app.app import App
from headrace.client.call import ApiCall
from headrace.client.calls import queues, work
from headrace.client.client import Client
from headrace.client.codec import Codec
from headrace.client.models import Dequeued, Lease, Reported
from headrace.client.sending import Report
from headrace.domain.errors import Forbidden, NotFound

_log = logging.getLogger("headrace.worker")


class WorkerService(Protocol):
    """The service as a worker uses it; every method raises headrace.domain.errors."""

    @property
    def codec(self) -> Codec:
        """How payloads, results and progress are written."""
        ...

    def prepare(self, app: App) -> None:
        """Make missing queues of *app* and put its schedules, as far as the key may."""
        ...

    def check_queue(self, queue: str) -> None:
        """Raise NotFound, Forbidden or Unauthenticated if *queue* cannot be seen."""
        ...

    def dequeue(
        self,
        queues: Sequence[str],
        *,
        batch_size: int,
        worker: str,
        keepalive: float | None,
        lease_id: str | None = None,
        key: str,
        attempt: int,
    ) -> Dequeued:
        """Lease up to *batch_size* tasks, under the group *lease_id* if that is named.

        A later queue gives only what those before do not have.  Asked again under the same *key*,
        which *attempt* counts, it gives the tasks that were leased before.
        Raises LeaseLost when the group has ended; a refusal of one queue names ``queues[i]``.
        """
        ...

    def open_lease(self, *, keepalive: float) -> Lease:
        """Open a lease for many tasks that lasts *keepalive* seconds."""
        ...

    def extend_lease(self, id: str, *, within: float) -> Lease:
        """Let it last as long again.

        Raises LeaseLost when it has ended, and Unavailable when nothing is heard for *within*
        seconds.
        """
        ...

    def close_lease(self, id: str) -> None:
        """End it and release what is unsettled under it.  Raises LeaseLost, NotFound."""
        ...

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        """Report on up to 25 tasks; one result for each, in their order.

        Raises Unavailable when nothing is heard for *within* seconds.
        """
        ...

    def sign(
        self,
        name: str,
        *,
        queues: Sequence[str],
        concurrency: int,
        running: Sequence[str],
        version: str,
        started_at: datetime,
    ) -> str | None:
        """Send a worker heartbeat and return the command of an operator."""
        ...


class RemoteService:
    """The service behind a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def codec(self) -> Codec:
        """The client's."""
        return self._client.codec

    def prepare(self, app: App) -> None:
        """Do both, and log what is not allowed: a worker needs neither to take tasks."""
        try:
            app.ensure_queues(self._client)
            app.sync_schedules(self._client)
        except (Forbidden, NotFound) as error:
            _log.warning("Queues and schedules are left as they are: %s", error)

    def check_queue(self, queue: str) -> None:
        """Ask for the queue's settings."""
        self._client.send(queues.get_queue(queue), again=False)

    def dequeue(
        self,
        queues: Sequence[str],
        *,
        batch_size: int,
        worker: str,
        keepalive: float | None,
        lease_id: str | None = None,
        key: str,
        attempt: int,
    ) -> Dequeued:
        """Send it once: the caller sends the same request again, as often as it takes."""
        call = work.dequeue(
            queue=queues[0] if len(queues) == 1 else None,
            queues=None if len(queues) == 1 else queues,
            batch_size=batch_size,
            worker=worker,
            keepalive_timeout_in_seconds=keepalive,
            lease_id=lease_id,
        )
        return self._client.send(replace(call, key=key, attempt=attempt), again=False)

    def open_lease(self, *, keepalive: float) -> Lease:
        """Ask once: one whose answer is lost holds nothing, and lapses."""
        call = work.open_lease(keepalive_timeout_in_seconds=keepalive)
        return self._client.send(call, again=False)

    def extend_lease(self, id: str, *, within: float) -> Lease:
        """Ask once: the heartbeats have a pace of their own."""
        return self._client.send(work.extend_lease(id), again=False, timeout=within)

    def close_lease(self, id: str) -> None:
        """Close it; a repeat does no harm."""
        self._client.send(work.close_lease(id), again=False)

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        """Report once: the caller keeps the reports and tries again."""
        call: ApiCall[list[Reported]] = work.report_batch(queue, reports)
        return self._client.send(call, again=False, timeout=within)

    def sign(
        self,
        name: str,
        *,
        queues: Sequence[str],
        concurrency: int,
        running: Sequence[str],
        version: str,
        started_at: datetime,
    ) -> str | None:
        """Send the worker heartbeat once: the next follows soon."""
        call = work.put_worker(
            name,
            queues=queues,
            concurrency=concurrency,
            running=running,
            version=version,
            started_at=started_at,
        )
        return self._client.send(call, again=False)
