"""The limits of the contract, and what is wrong with a value that is beyond one.

Sizes are bytes of UTF-8, durations seconds.  The bounds of a queue setting are in its declaration
(``queue_settings``), unless another module needs them.

Every surface that takes values from people (API, SDK,
Spark, console) asks the functions here, so that one limit has one wording everywhere; each returns
a message that goes on behind the name of the field, or None where nothing is wrong.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

if TYPE_CHECKING:
    from headrace.domain.task import Task

Bounds: TypeAlias = tuple[float, float]
"""The least and the most, both allowed."""

KIB: Final = 1024
MIB: Final = 1024 * KIB

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"  # queues and schedules
TASK_ID: Final = r"[A-Za-z0-9_-]{1,64}"
IDEMPOTENCY_KEY: Final = r"[A-Za-z0-9_-]{1,64}"
GROUP_ID: Final = r"lsg_[0-9a-hjkmnp-tv-z]{20}_[0-9a-hjkmnp-tv-z]{16}"  # leases of many tasks
NAME_RE: Final = re.compile(NAME, re.ASCII)
TASK_ID_RE: Final = re.compile(TASK_ID, re.ASCII)
IDEMPOTENCY_KEY_RE: Final = re.compile(IDEMPOTENCY_KEY, re.ASCII)
GROUP_ID_RE: Final = re.compile(GROUP_ID, re.ASCII)

BODY_BYTES: Final = 4 * MIB
ANSWER_BYTES: Final = 4 * MIB  # tasks in one answer
LAMBDA_BYTES: Final = 6 * MIB  # an event, or an answer, as Lambda passes it on: JSON in JSON
SENT_BYTES: Final = LAMBDA_BYTES - 64 * KIB  # a body in it, with room for its headers
PAYLOAD_BYTES: Final = 256 * KIB
UPLOAD_BYTES: Final = (1, 1024 * MIB)  # of a payload that its producer uploads
UPLOAD_SECONDS: Final = 3600  # that such an upload, and then its reference, is good for
SHA256: Final = r"[0-9a-fA-F]{64}"
OFFLOAD_BYTES: Final = (KIB, 256 * KIB)  # from which size on a text is kept elsewhere
RESULT_BYTES: Final = 32 * KIB
PROGRESS_BYTES: Final = 4 * KIB
ERROR_BYTES: Final = 4 * KIB  # one entry, as JSON
REASON_BYTES: Final = 500  # why somebody did something
WORKER_BYTES: Final = 256
WORKER_VERSION_BYTES: Final = 64
DEDUPE_KEY_BYTES: Final = (1, 256)
GROUP_KEY_BYTES: Final = (1, 128)
LEASE_NAME_BYTES: Final = (1, 256)  # of a group lease
SPAWNED_BYTES: Final = 2 * MIB  # payloads spawned by one report, together
AHEAD_BYTES: Final = 16 * MIB  # payloads that one schedule enqueues ahead: 64 of the largest
KEY_NAME_BYTES: Final = 128  # of an API key
PATTERN_BYTES: Final = 256  # of queues, of an API key
TAG_KEY_BYTES: Final = 64
TAG_VALUE_BYTES: Final = 256
SERVICE_PATH_BYTES: Final = 512  # of one path of the header Fiware-ServicePath
SERVICE_PATHS: Final = 100  # in one header
PAYLOAD_PATH_BYTES: Final = 128  # that a query or an index names
PAYLOAD_VALUE_BYTES: Final = 256  # of a value in an index or a query

TAGS: Final = 10
ERRORS_KEPT: Final = 20
TRAIL_KEPT: Final = 50
PATTERNS: Final = (1, 100)  # of queues, of an API key
BATCH: Final = 25  # enqueue, dequeue, report
SPAWN: Final = 250  # tasks of one report
SPAWN_AT_ONCE: Final = 24  # of these, those that one transaction creates
BULK_IDS: Final = 250
WORKER_QUEUES: Final = (1, 100)
DEQUEUE_QUEUES: Final = (1, 32)  # that one dequeue names
LEASE_QUEUES: Final = 100  # that one group lease takes tasks of
WORKER_TASKS: Final = 100  # that a heartbeat names
WORKER_CONCURRENCY: Final = (1, 10_000)
BULK_TASKS: Final = 1_000_000  # that one call may change
UNDO_ID: Final = 64  # characters
ACTION_QUEUES: Final = 100  # that one action of operators goes through
LIST_PAGE: Final = 250
QUERY: Final = 2_000  # characters
INDEXED: Final = 3  # indexed tags of a queue, and as many payload paths
METRIC_DAYS: Final = 92  # of one chart: a file of the lake is read for each

WAIT_SECONDS: Final = 20
MEMBER_SECONDS: Final = 3_600  # that a member of a batch is kept at least
BATCH_MEMBERS: Final = (0, 1_000_000)  # that a batch may count
BATCH_EXPIRES_SECONDS: Final = (1, 31_536_000)
BATCH_EXPIRES_DEFAULT: Final = 2_592_000
TASK_BATCHES: Final = 4  # that one task is counted in
TOMBSTONE_SECONDS: Final = 15 * 60  # for which the id of a task without retention stays taken
SETTINGS_TTL_SECONDS: Final = (0, 60)  # how old settings may be when tasks are handled
KEEPALIVE_SECONDS: Final = (1, 43_200)
EXPIRES_SECONDS: Final = (1, 31_536_000)  # and 0: never
UNIQUE_SECONDS: Final = (1, 31_536_000)
RETENTION_SECONDS: Final = (0, 31_536_000)
UNDO_SECONDS: Final = (0, 604_800)  # that what was deleted can be brought back
PAUSE_SECONDS: Final = (0, 31_536_000)
DELAY_SECONDS: Final = (0, 31_536_000)
OVERLAP_SECONDS: Final = (0, 86_400)  # that a rotated key's secret lives on
MAX_RETRIES: Final = (0, 100)
BASE_SECONDS: Final = (0, 86_400)
RETRY_DELAY_SECONDS: Final = (0, 2_592_000)
JITTER: Final = (0, 1)
INTERVALS: Final = (1, 100)
WEIGHT: Final = (0.01, 1_000)  # of a group
GROUP_INFLIGHT: Final = (0, 100)  # max_inflight_per_group
WEIGHTS: Final = 1_000  # groups of a queue with a weight
INFLIGHT: Final = (0, 10_000)  # max_inflight_tasks
TARGET_URL_BYTES: Final = 2_048
TARGET_HEADERS: Final = 20
TARGET_HEADER_BYTES: Final = 4 * KIB  # names and values together
TARGET_ANSWER_BYTES: Final = 64 * KIB  # that are read of one
RETRY_AFTER_SECONDS: Final = 3_600  # that a target may ask for
EVERY_SECONDS: Final = (1, 31_536_000)  # between two tasks of a schedule
CRON: Final = 256  # characters
TIMEZONE: Final = 64  # characters
COUNT: Final = (0, 1_000_000_000)  # max_size, max_tokens


def utf8_bytes(text: str) -> int:
    """Return how many bytes of UTF-8 *text* takes; lone surrogates count as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def sent_bytes(text: str) -> int:
    """Return how many bytes *text* takes where it stands as a string in JSON, its quotes left out.

    As Lambda's client writes it (Python 3.12 and later): other text than ASCII stays, except in
    some of its versions the two separators that JavaScript took for the end of a line.  *text* is
    JSON itself, so it has no other control characters than white space.
    """
    size = len(encode_basestring(text)) - 2  # in characters; in C, as it is done for every task
    if text.isascii():
        return size
    separators = text.count("\u2028") + text.count("\u2029")
    return size + utf8_bytes(text) - len(text) + 3 * separators


# A generous size of a task without its texts: the names of its fields, times, ids, its lease.
_TASK: Final = 2048
_ERROR: Final = 192
_HOP: Final = 64
_UPLOADED: Final = 4096  # the URL by which a payload is fetched, which S3 has signed

_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class AnswerRoom:
    """The room that is left in one answer, in bytes: of its text, and of that text as it goes out.

    The second counts what Lambda adds when it puts the text into JSON once more: a quote or a
    backslash takes two bytes then.
    """

    text: int = ANSWER_BYTES
    sent: int = SENT_BYTES

    def takes(self, *texts: str, besides: int = 0) -> bool:
        """Take *texts* and *besides* bytes more out of the room; return whether they fit.

        What does not fit ends the answer: the room has none left for anything after it.
        """
        self.text -= besides
        self.sent -= besides
        for text in texts:
            self.text -= utf8_bytes(text)
            self.sent -= sent_bytes(text)
        return self.text >= 0 and self.sent >= 0

    def takes_task(self, task: "Task") -> bool:
        """Do so for *task*, by what it takes at most."""
        texts = [text for text in (task.payload, task.result, task.progress) if text]
        names = [name for name in (task.dedupe_key, task.worker, task.schedule) if name]
        texts += map(encode_basestring, names)
        besides = _UPLOADED if task.uploaded is not None else 0
        for name, one in task.fetchable.items():
            if getattr(task, name) is None:  # not fetched yet: as it may go out at most
                self.text -= one.bytes
                self.sent -= 2 * one.bytes
        if not (task.tags or task.errors or task.trail):  # as most are
            return self.takes(*texts, besides=_TASK + besides)
        errors = [[error.worker, error.type, error.message, error.detail] for error in task.errors]
        hops = [hop.queue for hop in task.trail]
        return self.takes(
            *texts,
            _dumps([dict(task.tags), errors, hops]),
            besides=_TASK + besides + _ERROR * len(errors) + _HOP * len(hops),
        )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


check_json: Final = json.JSONDecoder(
    parse_constant=_no_constant, parse_int=str, parse_float=str
).decode
"""Raises ValueError for a text that is no JSON in the strict sense.

It converts no number: Python bounds its digits, JSON does not.
"""


HALF_A_PAIR: Final = "must be text; it has half of a surrogate pair"


def text_fault(value: object, most: int, least: int = 0) -> str | None:
    """Return the fault of *value* as a text of *least* to *most* bytes of UTF-8."""
    if not isinstance(value, str):
        return "must be a string"
    if not value.isascii() and _SURROGATE.search(value):
        return HALF_A_PAIR
    size = utf8_bytes(value)
    if size > most:
        return f"must be at most {most} bytes of UTF-8; it is {size}"
    if size < least:
        return "must not be empty"
    return None


def json_fault(size: int, most: int) -> str | None:
    """Return the fault of JSON text of *size* bytes where *most* are allowed."""
    return f"must be at most {most} bytes of JSON text; it is {size}" if size > most else None


def result_fault(result: str | None) -> str:
    """Return why the JSON text *result* cannot be kept, or ""."""
    if result is None:
        return ""
    fault = json_fault(utf8_bytes(result), RESULT_BYTES)
    if fault:
        return fault
    try:
        check_json(result)
    except (ValueError, RecursionError) as error:
        return f"must be JSON: {error}"
    if member := reserved_member(result):
        reserved = f"names that begin with {RESERVED_PREFIX} are reserved"
        return f"must not have the member {member}: {reserved}"
    return ""


def id_in_words(most: int = 64) -> str:
    """Return the rule for an id of at most *most* characters."""
    return f"must be 1 to {most} ASCII letters, digits, '_' or '-'"


_IN_WORDS: Final[Mapping[str, str]] = {
    NAME: (
        "must be 1 to 128 ASCII letters, digits, '_', '.' or '-', beginning with a letter or digit"
    ),
    TASK_ID: id_in_words(),
    IDEMPOTENCY_KEY: id_in_words(),
    GROUP_ID: "must be the id of a lease of many tasks, as it was answered",
    SHA256: "must be 64 hexadecimal digits",
}


def pattern_in_words(pattern: str) -> str:
    """Return the rule for a text that matches *pattern*, one of the patterns above."""
    return _IN_WORDS.get(pattern) or f"must match {pattern}"


def pattern_fault(value: object, pattern: re.Pattern[str]) -> str | None:
    """Return the fault of *value* as a text that *pattern* describes: a name, an id."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return None
    return f"{pattern_in_words(pattern.pattern)}, not {value!r:.140}"


def number_fault(
    value: object, bounds: Bounds, *, whole: bool = False, unit: str = ""
) -> str | None:
    """Return the fault of *value* as a number within *bounds*; *unit* is a word such as seconds."""
    kind = "a whole number" if whole else "a number"
    low, high = bounds
    if math.isfinite(high):
        within = f"must be {kind} from {low} to {high}{unit and ' '}{unit}, not {value!r:.140}"
    else:
        within = f"must be {kind} of at least {low}{unit and ' '}{unit}, not {value!r:.140}"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return within
    return None if math.isfinite(value) and low <= value <= high else within


def tags_faults(tags: Mapping[Any, object]) -> Iterator[tuple[str | None, str]]:
    """Yield what is wrong with *tags*: the key, or None for all of them, and the message."""
    if len(tags) > TAGS:
        yield None, f"must have at most {TAGS} tags; it has {len(tags)}"
    for key, value in tags.items():
        for fault in (text_fault(key, TAG_KEY_BYTES, 1), text_fault(value, TAG_VALUE_BYTES)):
            if fault:
                yield str(key), fault


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


RESERVED_PREFIX: Final = "headrace."
"""Names of tasks and members of results that begin so are reserved."""

RELAY_TASK: Final = "headrace.relay"
"""The task that stands for the members of its batch in other batches; the service writes it."""

RESERVED_TASK: Final = f"must not begin with {RESERVED_PREFIX}: these names are reserved"


def reserved_task(payload: str) -> str | None:
    """Return the reserved name of the task that the JSON text *payload* calls; None for none."""
    if not _may_name(payload):
        return None
    name = _read(payload).get("task")
    return name if isinstance(name, str) and name.startswith(RESERVED_PREFIX) else None


def reserved_member(result: str) -> str | None:
    """Return the first reserved name of a member of the JSON text *result*; None for none."""
    if not _may_name(result):
        return None
    return next((name for name in _read(result) if name.startswith(RESERVED_PREFIX)), None)


RELAY_PAYLOAD: Final = f'{{"task":"{RELAY_TASK}","args":{{}}}}'


def _may_name(text: str) -> bool:
    r"""Return whether *text* may hold the prefix: as it is, or escaped as ``\u0068eadrace.``."""
    return text.lstrip(" \t\n\r").startswith("{") and (RESERVED_PREFIX in text or "\\u" in text)


def _read(text: str) -> dict[str, object]:
    """Return the members of an object; none of one nested so deeply that the SDK cannot read it."""
    try:
        found = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
