"""`headrace doctor`: is the service there, does the key fit, and what in the queues will hurt.

The advice itself is pure: functions from what was seen to what to do about it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import click

from headrace import __version__
from headrace.cli.commands import CliCommand, queue_names
from headrace.cli.output import cell, document, grid, span, write
from headrace.cli.session import CliSession, Exit, exit_of
from headrace.client.address import FileAddress
from headrace.client.client import Client
from headrace.client.embedding import FileCare, care_of
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.texts import amount
from headrace.wire.queues import Queue
from headrace.wire.service import WorkerSeen

_MARKS: Final = {"ok": ("ok", "green"), "advice": ("!", "yellow"), "failed": ("x", "red")}
_ROLE: Final = re.compile(r"an? (\w+) key may not")
_SHORT_LEASE: Final = 3.0
_SKEW: Final = 2.0
_OLD_READY: Final = 60.0
_SHARD_DELIVERIES: Final = 500  # a second: 1,000 write units, and a task passes with two
_BUSY: Final = 0.7  # of what a shard carries
SILENT_SECONDS: Final = 75.0
"""A worker without a heartbeat for longer is silent; heartbeats come every 30 seconds."""

_MAX_DELAY: Final = "retry_strategy.max_delay_seconds"
_DEAD: Final = "dead_letter_queue_config"
_UNIT_SECONDS: Final = {"SECONDS": 1, "MINUTES": 60, "HOURS": 3600}


@dataclass(frozen=True, slots=True)
class Advice:
    """The result of one check; it has an advice if something is wrong."""

    subject: str
    seen: str
    advice: str = ""
    level: str = "ok"  #: ok, advice, or failed


def hint(subject: str, seen: str, advice: str) -> Advice:
    """Return a result with an advice."""
    return Advice(subject, seen, advice, "advice")


def skew_advice(ours: datetime, theirs: datetime) -> Advice:
    """Compare this machine's clock with the service's."""
    off = (ours - theirs).total_seconds()
    if abs(off) <= _SKEW:
        return Advice("clock", f"within {max(abs(off), 0.1):.1f} s of the service's")
    seen = f"{span(abs(off))} {'ahead of' if off > 0 else 'behind'} the service's"
    return hint("clock", seen, "set this machine's clock: the times that it sends are wrong")


def version_advice(ours: str, theirs: str) -> Advice:
    """Compare the versions of both sides."""
    if ours == theirs:
        return Advice("version", f"{theirs} on both sides")
    return hint("version", f"{ours} here, {theirs} there", "install the same version on both sides")


def file_advice(path: str, care: FileCare) -> Iterator[Advice]:
    """Yield whether the file is intact, and whether it can be written to."""
    if damage := care.check():
        mend = "stop the programs that use it, and restore a backup"
        yield from (Advice("file", line, mend, "failed") for line in damage)
        return
    yield Advice("file", f"{path} is intact")
    try:
        care.try_write()
    except Unavailable as error:
        mend = "free space on its disk, or fix the error: until then every task is refused"
        yield Advice("file", error.detail, mend, "failed")
    else:
        yield Advice("file", "a write of a megabyte works")


def queue_advice(queue: Queue, workers: Sequence[WorkerSeen] | None, now: datetime) -> list[Advice]:
    """Return the problems of *queue*; *workers* are None for a key that may not list them."""
    subject = f"queue {queue.name}"
    settings = (*_lease(queue), *_retries(queue), *_keeping(queue), *_deliveries(queue))
    found = [
        hint(subject, seen, f"{why}: `headrace queue edit {queue.name} {option}`")
        for seen, why, option in (*settings, *_busy(queue))
    ]
    found += [hint(subject, seen, advice) for seen, advice in _backlog(queue, workers, now)]
    return found or [Advice(subject, "settings and backlog are fine")]


_Hints = Iterator[tuple[str, str, str]]
"""What is wrong with a setting, why it matters, and the option that corrects it."""


def _lease(queue: Queue) -> _Hints:
    seconds = queue.keepalive_timeout_in_seconds
    if seconds < _SHORT_LEASE:
        why = "a short pause of a worker loses leases, and each heartbeat costs a write unit"
        yield f"leases last {span(seconds)}", why, "--lease-seconds 30s"


def _retries(queue: Queue) -> _Hints:
    retry, dead = queue.retry_strategy, queue.dead_letter_queue_config
    if retry.max_retries == 0:
        end = "is dead" if dead.enable else "is deleted"
        why = f"after one failure or killed worker a task {end}"
        yield "max_retries is 0", why, "--max-retries 5"
    if retry.kind is not Backoff.INTERVALS and retry.max_delay_seconds < retry.base_seconds:
        longest, base = span(retry.max_delay_seconds), span(retry.base_seconds)
        grows = "" if retry.kind is Backoff.FIXED else " and does not grow"
        yield (
            f"max_delay ({longest}) < base ({base})",
            f"every wait is max_delay{grows}",
            f"--set {_MAX_DELAY}={retry.base_seconds:g}s",
        )
    lasts = horizon(retry)
    if 0 < queue.expires_in_seconds < lasts:
        expires = span(queue.expires_in_seconds)
        yield (
            f"tasks expire after {expires}, their retries take up to {span(lasts)}",
            "a task expires before its last retries",
            f"--expires {2 * lasts:.0f}s",
        )


def horizon(retry: RetryStrategy) -> float:
    """Return the longest total of all retry delays, in seconds."""
    most = retry.max_retries
    return sum(retry.delay_seconds(number, 1.0) for number in range(1, most + 1))


def _keeping(queue: Queue) -> _Hints:
    dead, why = queue.dead_letter_queue_config, "a task without retries left is deleted"
    if not dead.enable:
        yield "the dead-letter queue is off", why, f"--set {_DEAD}.enable=true"
    elif dead.retention_period_in_seconds == 0:
        option = f"--set {_DEAD}.retention_period_in_seconds=14d"
        yield "dead tasks are kept for 0 s", why, option
    if queue.history_retention_in_seconds == 0:
        why = (
            "a succeeded task is deleted with its result, and its id can be used again, so a late "
            "repeat of its enqueue runs it twice"
        )
        yield "history is 0", why, "--history 1d"


def _deliveries(queue: Queue) -> _Hints:
    rate = queue.dequeuing_settings.rate_limiting
    if rate is None:
        return
    a_second = rate.max_tokens / (rate.interval * _UNIT_SECONDS[str(rate.interval_unit)])
    if rate.max_tokens == 0:
        yield "the rate limit is 0", "no task is delivered", "--rate none"
    elif a_second < 1:
        seen = f"the rate limit is one task in {span(1 / a_second)}"
        yield seen, "if that is not intended", "--rate 50/s"


def _busy(queue: Queue) -> _Hints:
    if queue.stats is None:
        return
    rates, carries = queue.stats.rates, queue.shards * _SHARD_DELIVERIES
    rate = max(rates.enqueued_per_second, rates.dequeued_per_second)
    if rate >= _BUSY * carries:
        seen = (
            f"{rate:,.0f} tasks/s on {amount(queue.shards, 'shard')}, which can carry {carries:,}"
        )
        yield seen, "DynamoDB will throttle", f"--shards {queue.shards * 2}"


def _backlog(
    queue: Queue, workers: Sequence[WorkerSeen] | None, now: datetime
) -> Iterator[tuple[str, str]]:
    stats = queue.stats
    if stats is None:
        return
    waiting = stats.counts.ready
    if queue.dequeuing_settings.dequeuing_paused:
        if waiting:
            resume = f"to continue: `headrace queue resume {queue.name}`"
            yield f"paused, with {amount(waiting, 'task')} due", resume
        return
    oldest = stats.age_of_oldest_ready_seconds or 0.0
    if oldest < _OLD_READY:
        return
    seen = f"a task has been ready for {span(oldest)}"
    if workers is None:
        yield seen, "check that enough workers are running"
        return
    heard = [one for one in workers if (now - one.seen_at).total_seconds() <= SILENT_SECONDS]
    alive = [one for one in heard if queue.name in one.queues]
    if not alive:
        yield f"{seen}, and no worker is alive", "start one: `headrace work module:app`"
    elif all(one.command for one in alive):
        yield f"{seen}, and every worker has been asked to stop", "start another one"
    else:
        advice = "start more workers, or raise their concurrency"
        yield f"{seen}, with {amount(len(alive), 'worker')} alive", advice


@click.command("doctor", cls=CliCommand, example="headrace doctor\nheadrace doctor mail --json")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.pass_obj
def doctor_command(session: CliSession, queues: tuple[str, ...]) -> Exit:
    """Check key, clock, service and queues, with advice.

    Ends with 0 if everything is fine, 1 if there is advice, 3 if a QUEUE is missing, 4 if the key
    is refused, and 6 if the service cannot be reached or its file cannot be read or written.
    """
    session.retries = 0
    findings: list[Advice] = []
    code = Exit.DONE
    try:
        for finding in _checks(session.client, queues, session.now):
            findings.append(finding)  # noqa: PERF402 (results before an error are shown)
    except Unauthenticated as error:
        advice = f"is it one of this service? {session.key_named_by()}"
        findings.append(Advice("key", error.detail, advice, "failed"))
        code = Exit.NOT_ALLOWED
    except HeadraceError as error:
        code = exit_of(error)
        detail = session.explain(error)
        silent = detail != error.detail  # the error about a file has its own advice
        advice = f"is it running? {session.named_by()}" if silent else "-"
        findings.append(Advice("service", detail, advice, "failed"))
    levels = {one.level for one in findings}
    if code is Exit.DONE and levels != {"ok"}:
        damaged = any(one.subject == "file" and one.level == "failed" for one in findings)
        found = Exit.UNAVAILABLE if damaged else Exit.NOT_FOUND
        code = found if "failed" in levels else Exit.FAILED
    _show_outcome(session, findings)
    return code


def _checks(
    client: Client, queues: tuple[str, ...], now: Callable[[], datetime]
) -> Iterator[Advice]:
    address = getattr(getattr(client, "settings", None), "address", None)
    if isinstance(address, FileAddress):
        yield from file_advice(address.path, care_of(address))  # a damaged file may not answer
    before = now()
    health = client.health()
    took = now() - before
    url = getattr(client, "url", "the service")
    yield Advice("service", f"{url} answers in {took.total_seconds() * 1000:.0f} ms")
    yield skew_advice(before + took / 2, health.now)
    yield version_advice(__version__, health.version)
    yield Advice("key", f"is known: {_role(client)}")
    workers = _workers(client)
    names = queues or tuple(queue.name for queue in client.list_queues())
    if not names:
        yield Advice("queues", "this key can see none: `headrace queue create NAME`")
    for name in names:
        try:
            yield from queue_advice(client.get_queue(name), workers, health.now)
        except NotFound as error:
            make = f"`headrace queue create {name}`"
            yield Advice(f"queue {name}", error.detail, make, "failed")


def _role(client: Client) -> str:
    """Return the role of the key; only an admin may list keys, and a refusal names the role."""
    try:
        next(client.list_keys(), None)
    except Forbidden as error:
        found = _ROLE.search(error.detail)
        return found[1] if found else "not admin"
    return "admin"


def _workers(client: Client) -> list[WorkerSeen] | None:
    try:
        return list(client.list_workers())
    except Forbidden:
        return None


def _show_outcome(session: CliSession, findings: list[Advice]) -> None:
    if session.json:
        document(findings)
        return
    made = grid("", "What", "Seen", "Advice")
    for one in findings:
        mark, style = _MARKS[one.level]
        made.add_row(cell(mark, style), cell(one.subject), cell(one.seen), cell(one.advice or "-"))
    write(made)
