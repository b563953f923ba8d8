"""A small HTTP client of the queue: the calls a producer and a worker need, and what they cost.

Kept to what the demo uses; a program of one's own takes the project's SDK.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3

# What the service answered is JSON whose shape the contract promises; it is read, not checked.
Answer = dict[str, Any]

TIMEOUT = urllib3.Timeout(connect=2.0, read=15.0)
"""Seconds; reading leaves time for a service that is busy on a small machine."""

MOST_BODY_BYTES = 3 * 1024 * 1024
"""Of reports in one call: below the service's 4 MiB, which hold what is around them too."""

MOST_DIGITS = 400
"""Of an integer; a float is infinite with 310."""

TRY_AGAIN = frozenset({429, 503})


class Refused(Exception):
    """The service refused a call; ``status`` is HTTP's, the text is the service's own."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the status beside the message."""
        super().__init__(f"{status}: {message}")
        self.status = status


class Unavailable(Exception):
    """No answer, or one that asks to come back later: the same call may be tried again."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What calls cost so far, from the header X-Consumed-Units of every answer."""

    calls: int = 0
    write_units: float = 0.0
    read_units: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.calls + other.calls,
            self.write_units + other.write_units,
            self.read_units + other.read_units,
        )


class QueueClient:
    """Calls over kept-alive connections; safe to share between threads."""

    def __init__(self, url: str, key: str, connections: int = 8) -> None:
        """``key`` goes out as the Bearer token of each call."""
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        # Nothing is repeated here: whether a call may be, only its caller knows.
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False, timeout=TIMEOUT)
        self._lock = threading.Lock()
        self._tally = Tally()

    @property
    def tally(self) -> Tally:
        """Cost of all calls of this client until now."""
        with self._lock:
            return self._tally

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def dequeue(self, queue: str, batch_size: int, worker: str) -> Answer:
        """Lease up to ``batch_size`` (1-25) tasks to the worker of that name."""
        body = {"batch_size": batch_size, "worker": worker}
        return self._json("POST", f"/v1/queues/{queue}/dequeue", body)

    def report(self, queue: str, reports: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Report on 1-25 tasks; one result for each, in their order. Safe to repeat.

        Payloads too large for one body together go out in several calls.
        """
        results: list[Answer] = []
        for batch in _in_bodies(reports):
            answer = self._json("POST", f"/v1/queues/{queue}/reports", {"reports": batch})
            results += answer["results"]
        return results

    def create_queue(self, settings: Mapping[str, Any]) -> Answer:
        """Create a queue; only ``name`` is required."""
        return self._json("POST", "/v1/queues", settings)

    def count(self, queue: str) -> dict[str, int]:
        """How many tasks of the queue are in each stored state."""
        by_state: dict[str, int] = self._json("GET", f"/v1/queues/{queue}/count")["by_state"]
        return by_state

    def list_page(self, queue: str, cursor: str | None, **filters: str) -> Answer:
        """One page of the queue's tasks: ``tasks``, and the ``cursor`` of the next page or None."""
        fields = {"limit": "250", **filters} | ({"cursor": cursor} if cursor else {})
        return self._json("GET", f"/v1/queues/{queue}/tasks", fields=fields)

    def notify(self, body: bytes, headers: Mapping[str, str]) -> str:
        """Send a notification as an NGSI context broker would; the answer is a line of text."""
        return self._call("POST", "/v2/notify", body, headers).decode()

    def _json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Answer:
        if fields:
            path = f"{path}?{urlencode(fields)}"
        data = None if body is None else json.dumps(body).encode()
        answer: Answer = json.loads(self._call(method, path, data, {}), parse_int=_integer)
        return answer

    def _call(self, method: str, path: str, body: bytes | None, extra: Mapping[str, str]) -> bytes:
        try:
            response = self._pool.request(
                method, self._url + path, body=body, headers=self._headers | dict(extra)
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"{method} {path}: {error}") from error
        self._add(response.headers.get("X-Consumed-Units", ""))
        if response.status in TRY_AGAIN:
            raise Unavailable(f"{method} {path}: {response.status}")
        if response.status >= 400:  # noqa: PLR2004 (HTTP's own boundary)
            raise Refused(response.status, f"{method} {path}: {_problem(response.data)}")
        return response.data

    def _add(self, header: str) -> None:
        units = dict(part.strip().split("=", 1) for part in header.split(",") if "=" in part)
        cost = Tally(1, float(units.get("w", 0)), float(units.get("r", 0)))
        with self._lock:
            self._tally += cost


def _integer(digits: str) -> int | float:
    """A JSON integer; infinite when it has more digits than any number one could use.

    Payloads come as they were sent, and Python raises an error for 4,300 digits: one such payload
    would cost its whole batch.
    """
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def _in_bodies(reports: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The reports in as few lists as fit into one request body each."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for report in reports:
        length = len(json.dumps(report))
        if batch and size + length > MOST_BODY_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(report)
        size += length
    if batch:
        yield batch


def _problem(body: bytes) -> str:
    """The ``detail`` of a problem document, and which fields it names."""
    try:
        problem = json.loads(body)
        fields = "; ".join(f"{e['field']}: {e['message']}" for e in problem.get("errors") or [])
        return f"{problem['detail']} {fields}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return repr(body[:200])
