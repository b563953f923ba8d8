"""Sends one task to its target and returns the answer."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

import httpcore2 as httpcore

from headrace.domain import limits
from headrace.domain.push import REFUSED_TYPE, Destination, PushHosts, Target, url_fault
from headrace.domain.push_messages import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    TargetAnswer,
    signature,
)
from headrace.domain.task import Task
from headrace.push.connections import (
    Connect,
    GuardedBackend,
    Requests,
    Resolve,
    TargetRefused,
    connect_to,
    resolve_host,
)

_TOO_LARGE: Final = 413  # the status for a payload that is not sent

CallFunction: TypeAlias = Callable[[str, bytes, float], TargetAnswer]
"""Calls the Lambda function of an ARN with an event, within seconds."""


@dataclass(slots=True)
class TargetSender:
    """Sends tasks one after the other, for one thread: to URLs and to Lambda functions.

    *hosts* may be private.  Without *call_function*, tasks for functions fail.
    """

    hosts: PushHosts
    now: Callable[[], datetime]
    call_function: CallFunction | None = None
    ssl_context: Any = None  # httpcore's default if None
    resolve: Resolve = resolve_host
    connect: Connect = connect_to
    monotonic: Callable[[], float] = time.monotonic
    _backend: GuardedBackend = field(init=False)
    _requests: Requests = field(init=False)
    _checked: tuple[str, Destination | str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._backend = GuardedBackend(
            self.hosts, resolve=self.resolve, connect=self.connect, monotonic=self.monotonic
        )
        self._requests = Requests(self._backend, self.ssl_context, self.monotonic)

    def send(self, target: Target, task: Task, secrets: Sequence[str]) -> TargetAnswer:
        """Send *task* to *target*, signed by *secrets*; an error becomes an answer, too.

        A task that was moved here may have an uploaded payload, which is not sent.
        """
        if task.uploaded is not None:
            return TargetAnswer(_TOO_LARGE, b"its payload was uploaded, and is not pushed")
        if target.function is not None:
            return self._invoke(target.function, target, task)
        return self._post(target.url or "", target, task, secrets)

    def close(self) -> None:
        """Close the connection."""
        self._requests.close()

    def _invoke(self, arn: str, target: Target, task: Task) -> TargetAnswer:
        if self.call_function is None:
            message = "this service calls no Lambda functions"
            return TargetAnswer(None, error=REFUSED_TYPE, message=message)
        return self.call_function(arn, function_event(task), float(target.timeout_in_seconds))

    def _post(self, url: str, target: Target, task: Task, secrets: Sequence[str]) -> TargetAnswer:
        to = self._destination(url)
        if isinstance(to, str):
            return TargetAnswer(None, error=REFUSED_TYPE, message=f"target.url {to}")
        body = (task.payload or "null").encode()
        headers = [
            ("Host", to.authority),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Accept-Encoding", "identity"),
            ("User-Agent", "headrace"),
            ("Headrace-Queue", task.queue),
            ("Headrace-Attempt", str(task.attempts)),
            *self._signature(task, body, secrets),
            *target.headers.items(),
        ]
        self._backend.until = self.monotonic() + float(target.timeout_in_seconds)
        try:
            answer = self._requests.post(to, headers, body, most=limits.TARGET_ANSWER_BYTES)
        except TargetRefused as error:
            return TargetAnswer(None, error=REFUSED_TYPE, message=str(error))
        except httpcore.TimeoutException:
            message = f"no answer within {target.timeout_in_seconds} s"
            return TargetAnswer(None, error="Timeout", message=message)
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            name = type(error).__name__
            return TargetAnswer(None, error=name, message=str(error) or name)
        found = (value for name, value in answer.headers if name == b"retry-after")
        retry_after = next(found, b"").decode("latin-1") or None
        return TargetAnswer(answer.status, answer.body, retry_after, whole=answer.whole)

    def _destination(self, url: str) -> Destination | str:
        """Return *url* parsed, or its fault; the last one is cached."""
        if self._checked is None or self._checked[0] != url:
            # The allowed hosts may have changed since the URL was set.
            fault = url_fault(url, self.hosts)
            self._checked = url, Destination.parse(url) if fault is None else fault
        return self._checked[1]

    def _signature(self, task: Task, body: bytes, secrets: Sequence[str]) -> list[tuple[str, str]]:
        timestamp = int(self.now().timestamp())
        signed = signature(secrets, message_id=task.id, timestamp=timestamp, body=body)
        return [
            (ID_HEADER, task.id),
            (TIMESTAMP_HEADER, str(timestamp)),
            (SIGNATURE_HEADER, signed),
        ]


def function_event(task: Task) -> bytes:
    """Return the event for a Lambda function, as JSON; the payload's bytes are not changed."""
    known = {"id": task.id, "queue": task.queue, "attempt": task.attempts}
    return f'{json.dumps(known)[:-1]}, "payload": {task.payload}}}'.encode()
