"""Operations of several calls, written once for the client with threads and the one with a loop.

An operation is a generator.  It yields steps: calls to send, pauses, and functions that block.  The
client takes each step and sends its result back into the generator; errors are raised there.  What
the generator returns is the result of the operation.  A *stream* also yields `Found`: values for
the caller.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, Unpack

from headrace.client.calls import (
    ApiCall,
    CallChain,
    CallStep,
    ListPage,
    PagedCall,
    SteppedCall,
    queues,
    tasks,
    work,
)
from headrace.client.codec import Codec
from headrace.client.queue_fields import QueueFields
from headrace.client.sending import NewTask, Report, task_entry
from headrace.domain import limits
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound, VersionMismatch
from headrace.wire.queues import Queue
from headrace.wire.tasks import Enqueued, Reported

if TYPE_CHECKING:
    from headrace.client.app.clients import AppQueues

T = TypeVar("T")
S = TypeVar("S", bound=CallStep)
E = TypeVar("E", bound=Enqueued)


@dataclass(frozen=True, slots=True)
class Pause:
    """Let *seconds* pass before the next look at *waiting_for*.

    ``number`` counts the pauses of one wait from 1; ``left`` is how many seconds the wait has left.
    """

    seconds: float
    waiting_for: object
    number: int
    left: float


@dataclass(frozen=True, slots=True)
class Blocking(Generic[T]):
    """Call a function that blocks; an event loop calls it in a thread."""

    call: Callable[[], T]


@dataclass(frozen=True, slots=True)
class FromClient:
    """Return the attribute *name* of the client: its codec or its clock."""

    name: Literal["codec", "clock"]


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """Give *values* to the caller of a stream."""

    values: Sequence[T]


Step: TypeAlias = ApiCall[Any] | Pause | Blocking[Any] | FromClient
Operation: TypeAlias = Generator[Step, Any, T]
Stream: TypeAlias = Generator[Step | Found[T], Any, None]
Clock: TypeAlias = Callable[[], float]

Errors: TypeAlias = Literal["raise", "return"]
"""Whether an entry that comes out INVALID is an error, or a result like the others."""

_EDITS: Final = 5  # tries of an edit that other edits prevent
_BATCH_BYTES: Final = limits.BODY_BYTES - 1024  # the brackets around the entries

monotonic: Final = time.monotonic


# ----------------------------------------------------------------------------- lists and long calls


def answers(
    chain: CallChain[S], values: Callable[[S], Sequence[Any]] = lambda answer: (answer,)
) -> Stream[Any]:
    """Send call after call of *chain*; find the *values* of each answer, or the answer."""
    cursor: str | None = None
    while True:
        answer: S = yield chain.at(cursor)
        yield Found(values(answer))
        cursor = answer.cursor
        if cursor is None:
            return


def entries(pages: PagedCall[T]) -> Stream[T]:
    """Find the entries of a list, page after page, in constant memory."""
    return answers(pages, lambda page: page.entries)


def every_entry(pages: PagedCall[T]) -> Operation[list[T]]:
    """Return all entries of a list."""
    found: list[ListPage[T]] = yield from _every_answer(pages)
    return [one for page in found for one in page.entries]


def so_far(steps: SteppedCall[S]) -> Stream[S]:
    """Find, after each call, the total of the answers so far."""
    found: list[S] = []

    def total(answer: S) -> tuple[S]:
        found[:] = [steps.total([*found, answer])]
        return (found[0],)

    return answers(steps, total)


def whole(steps: SteppedCall[S]) -> Operation[S]:
    """Return the total of all answers."""
    return steps.total((yield from _every_answer(steps)))


def _every_answer(chain: CallChain[S]) -> Operation[list[S]]:
    found: list[S] = []
    while not found or found[-1].cursor is not None:
        found.append((yield chain.at(found[-1].cursor if found else None)))
    return found


def sent(call: ApiCall[T]) -> Operation[T]:
    """Return the answer to *call*."""
    answer: T = yield call
    return answer


def edit_queue(name: str, **changes: Unpack[QueueFields]) -> Operation[Queue]:
    """Change some settings and leave the others; those in objects one by one too.

    Raises NotFound, InvalidRequest naming the field, or VersionMismatch when others keep
    changing the queue at the same time.
    """
    tries = 0
    while True:
        tries += 1
        queue: Queue = yield queues.get_queue(name)
        try:
            edited: Queue = yield queues.replace_queue(queues.merged(queue, changes))
        except VersionMismatch:
            if tries == _EDITS:
                raise
        else:
            return edited


def report(queue: str, reports: Sequence[Report]) -> Operation[list[Reported]]:
    """Report on any number of tasks of *queue*; one result for each, in their order."""
    results: list[Reported] = []
    for start in range(0, len(reports), limits.BATCH):
        results += yield work.report_batch(queue, reports[start : start + limits.BATCH])
    return results


# ------------------------------------------------------------------------------- queues of an app


def with_queues(calls: Iterable[object], steps: Callable[[], Operation[T]]) -> Operation[T]:
    """Return the result of *steps*; make queues of *calls* that are missing, and try once more.

    A call of an app's function knows its app, which makes the queue as it declares it.
    Raises as *steps* does, and NotFound naming the command where a queue may not be made.
    """
    try:
        return (yield from steps())
    except (NotFound, InvalidRequest) as refusal:
        if not (yield from _make_missing(calls, refusal)):
            raise
    return (yield from steps())


def _make_missing(calls: Iterable[object], refusal: NotFound | InvalidRequest) -> Operation[bool]:
    """Make the queues of *calls* that are missing; return whether there was one."""
    fields = [error.field for error in refusal.errors]
    if isinstance(refusal, InvalidRequest) and not any(one.endswith("queue") for one in fields):
        return False
    makers: dict[str, AppQueues] = {}
    for call in calls:
        maker: AppQueues | None = getattr(call, "queue_maker", None)
        if maker is not None:
            makers.setdefault(str(getattr(call, "queue")), maker)  # noqa: B009  a call has one
    made = False
    for name, maker in makers.items():
        try:
            yield queues.get_queue(name)
        except Forbidden:
            continue
        except NotFound as missing:
            yield from maker.make(name, missing)
            made = True
    return made


# ------------------------------------------------------------------------------------ many enqueues


def enqueue_many(
    queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
) -> Operation[list[Enqueued]]:
    """Put any number of tasks into *queue*; one result for each, in their order.

    Raises what ``enqueue`` does; the tasks before the error are in the queue then.  Give ids of
    your own if all tasks may have to be sent again.  INVALID entries do not prevent others:
    NotEnqueued is raised when all are sent, with the ``results``; with *errors* ``"return"`` they
    are results like the others.
    """
    raising = raises(errors)
    codec: Codec = yield FromClient("codec")
    results: list[Enqueued] = []
    for chunk in chunks_of(new, codec):
        results += yield tasks.enqueue_entries(queue, chunk)
    return checked(results, raising=raising)


def enqueue_each(
    queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
) -> Stream[Enqueued]:
    """Do the same in constant memory: each chunk is sent when its results are consumed.

    The first INVALID entry raises NotEnqueued in its place; the entries of its chunk are sent
    then, and no later ones.
    """
    codec: Codec = yield FromClient("codec")
    yield from enqueued_chunks(queue, new, codec, errors)


def enqueued_chunks(
    queue: str, new: Iterable[NewTask], codec: Codec, errors: Errors, *, place: int = 0
) -> Stream[Enqueued]:
    """Enqueue *new*, a chunk of 25 per call; find the result of each.

    *place* is the number of the first one, for errors.
    """
    raising = raises(errors)
    for chunk in chunks_of(new, codec, place):
        results: list[Enqueued] = yield tasks.enqueue_entries(queue, chunk)
        for number, result in enumerate(results):
            if raising and result.outcome == "INVALID":
                yield Found(results[:number])
                field = f"tasks[{place + number}]"
                raise tasks.not_enqueued({field: result.detail or ""}, [result])
        yield Found(results)
        place += len(results)


def chunks_of(new: Iterable[NewTask], codec: Codec, first: int = 0) -> Iterator[list[bytes]]:
    """Write *new* tasks in chunks that one call takes.

    Raises InvalidRequest or PayloadTooLarge naming the entry; *first* is the number of the first.
    """
    numbered = enumerate(new, first)
    return cut(task_entry(task, codec, path=f"tasks[{place}]") for place, task in numbered)


def cut(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut *entries* into chunks that one call takes: 25 entries, 4 MiB."""
    chunk: list[bytes] = []
    size = 0
    for entry in entries:
        if chunk and (len(chunk) == limits.BATCH or size + len(entry) >= _BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(entry) + 1
    if chunk:
        yield chunk


def raises(errors: Errors) -> bool:
    """Whether INVALID is an error.  Raises InvalidRequest for another word than the two."""
    if errors not in {"raise", "return"}:
        raise InvalidRequest.of("errors", f'must be "raise" or "return", not {errors!r:.100}')
    return errors == "raise"


def checked(results: list[E], *, raising: bool) -> list[E]:
    """Return *results*; if *raising*, raise NotEnqueued naming every INVALID entry."""
    if raising:
        tasks.check_enqueued(results)
    return results
