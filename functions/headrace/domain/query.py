"""The query language: its grammar, and the filter that a query means."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import EVERY_TASK, FINGERPRINT_RE, LENGTH, STATE_WORDS, TaskFilter
from headrace.domain.task import Priority
from headrace.domain.texts import PATH, QUOTED, parts_of, path_of, quoted, unquoted

FIELD: Final = "query"
"""The field that errors name."""

ReadValue: TypeAlias = Callable[[str], Any]
"""Reads the value of a key.  Raises ValueError that says what it must be."""

_KEY: Final = re.compile(r"([A-Za-z_]+):")
_WORD: Final = re.compile(rf"({QUOTED}|[^\s\"]+)(?=\s|\Z)")
_SPACE: Final = re.compile(r"\s*")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_BARE: Final = re.compile(r'[^\s"\\]+')


@dataclass(slots=True)
class QueryText:
    """A text that is read term by term: how far it is read is ``at``."""

    text: str
    at: int = 0

    def __post_init__(self) -> None:
        if len(self.text) > limits.QUERY:
            message = f"must be at most {limits.QUERY} characters, not {len(self.text)}"
            raise InvalidRequest.of(FIELD, message)

    def more(self) -> bool:
        """Advance to the next term; return whether there is one."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.at < len(self.text)

    def key(self) -> str | None:
        """Read a key with its colon, and return it as typed; None where a word stands."""
        found = _KEY.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[1]

    def word(self, begin: int) -> str:
        """Read a word, or text in quotes, of the term that begins at *begin*."""
        found = _WORD.match(self.text, self.at)
        if found is None:
            self.unended()
            key = self.text[begin : self.at].rstrip(":")
            self.fail(begin, f"{key:.80} needs a value behind the colon")
        self.at = found.end()
        return unquoted(found[1])

    def free_word(self) -> str:
        """Read a word that has no key."""
        begin = self.at
        word = self.word(begin)
        if not word:
            self.fail(begin, "nothing stands between the quotes")
        return word

    def value(self, begin: int, key: str, reads: ReadValue) -> Any:  # noqa: ANN401  the reader's type
        """Read the value of *key*, whose term begins at *begin*."""
        word = self.word(begin)
        try:
            return reads(word)
        except ValueError as error:
            self.fail(begin, f"{key} {error}")

    def no_key(self, begin: int, typed: str, keys: str) -> NoReturn:
        """Raise for a key that the list does not have."""
        self.fail(begin, f"{typed} is no key: use one of {keys}, or put the text in quotes")

    def unended(self) -> None:
        """Raise for a quote that does not end, or in which something is wrong."""
        quote = self.text.find('"', self.at)
        space = re.compile(r"\s|\Z").search(self.text, self.at)
        if quote >= 0 and space is not None and quote <= space.start():
            self.fail(quote, "a quote does not end, or has something at its end but a space")

    def fail(self, begin: int, message: str) -> NoReturn:
        """Raise InvalidRequest that names the place of the mistake."""
        raise InvalidRequest.of(FIELD, f"at character {begin + 1}: {message}")


def term_text(key: str, value: object) -> str:
    """Return the term that is read as *key* with *value*."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    text = str(value)
    return f"{key}:{text if _BARE.fullmatch(text) and text.isprintable() else quoted(text)}"


def word_text(text: str) -> str:
    """Return *text* so that it is read as one word without a key."""
    bare = _BARE.fullmatch(text) and text.isprintable() and not _KEY.match(text)
    return text if bare else quoted(text)


def text_of(most: int) -> ReadValue:
    """Return a reader of texts of 1 to *most* bytes."""
    return partial(_text, most)


def _text(most: int, text: str) -> str:
    if fault := limits.text_fault(text, most, 1):
        raise ValueError(fault)
    return text


def one_of(*words: str) -> ReadValue:
    """Return a reader of one or more of *words* with commas between, in upper or lower case."""
    return partial(_words, {word.lower(): word for word in words})


def _words(known: dict[str, str], text: str) -> tuple[str, ...]:
    given = text.lower().split(",")
    if any(word not in known for word in given):
        message = f"must be one or more of {', '.join(known.values())}, with commas between"
        raise ValueError(message)
    return tuple(known[word] for word in given)


def task_id(text: str) -> str:
    """Read an id of a task or a batch, or how it begins."""
    if not limits.TASK_ID_RE.fullmatch(text):
        message = "must be an id or how it begins: up to 64 letters, digits, _ or -"
        raise ValueError(message)
    return text


def queue_name(text: str) -> str:
    """Read the name of a queue."""
    if not limits.NAME_RE.fullmatch(text):
        message = "must be a queue's name: letters, digits, dots, dashes, underscores"
        raise ValueError(message)
    return text


def whole_count(text: str) -> int:
    """Read a whole number of things."""
    value = int(text) if _WHOLE.fullmatch(text) else text
    if fault := limits.number_fault(value, limits.COUNT, whole=True):
        raise ValueError(fault)
    return int(value)


def yes_or_no(text: str) -> bool:
    """Read yes or no."""
    if text.lower() not in _YES_OR_NO:
        message = f"must be {' or '.join(_YES_OR_NO)}"
        raise ValueError(message)
    return _YES_OR_NO[text.lower()]


_YES_OR_NO: Final = {"yes": True, "no": False}


def instant(text: str) -> datetime:
    """Read a date and time, in UTC unless it says otherwise."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        message = "must be a date and time as 2026-11-21T08:00Z"
        raise ValueError(message) from None


ID_PREFIX: Final = "tsk_"

_PAYLOAD: Final = re.compile(rf"payload\.({PATH}):")
_TAG: Final = re.compile(rf"({QUOTED}|[^\s\"=]+)=({QUOTED}|[^\s\"]*)(?=\s|\Z)")
_BARE_TAG: Final = re.compile(r'[^\s"\\=,]+')
_ONE_VALUE: Final = ("error", "fingerprint", "worker", "group", "priority", "attempts", "after",
                     "before", "id")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """What a text asks for: one queue (None: it does not say), and which of its tasks."""

    where: TaskFilter = EVERY_TASK
    queue: str | None = None


def query_text(query: Query) -> str:
    """Return the text that ``read`` reads as *query*."""
    return " ".join(text for text, _ in terms_of(query))


def terms_of(query: Query) -> Iterator[tuple[str, Query]]:
    """Yield each term of *query*, and what the query is without it."""
    where = query.where
    if query.queue is not None:
        yield term_text("queue", query.queue), replace(query, queue=None)
    if where.states:
        yield term_text("state", ",".join(where.states).lower()), _but(query, states=())
    for key, value in where.tags.items():
        rest = {name: text for name, text in where.tags.items() if name != key}
        yield f"tag:{_tag(key)}={_tag(value)}", _but(query, tags=rest)
    for path, value in where.payload.items():
        rest = {name: text for name, text in where.payload.items() if name != path}
        yield term_text(f"payload.{path}", value), _but(query, payload=rest)
    for key in _ONE_VALUE:
        name = _READ[key][0]
        value = getattr(where, name)
        if value is not None:
            yield term_text(key, value), _but(query, **{name: None})


def _but(query: Query, **changed: Any) -> Query:  # noqa: ANN401  fields of the filter
    return replace(query, where=replace(query.where, **changed))


def _tag(word: str) -> str:
    return word if _BARE_TAG.fullmatch(word) and word.isprintable() else quoted(word)


def narrow(text: str, where: TaskFilter, queue: str | None = None) -> TaskFilter:
    """Return *where*, of tasks of *queue* (None: of several), with all that *text* asks for.

    Raises InvalidRequest as read(), also where both name the same, or *text* another queue.
    """
    asked = read(text)
    if asked.queue not in (None, queue):
        other = "its queues in another way" if queue is None else f"queue {queue}"
        raise InvalidRequest.of(FIELD, f"names queue {asked.queue}, and the request {other}")
    more: dict[str, Any] = {}
    for one in fields(TaskFilter):
        wanted, there = getattr(asked.where, one.name), getattr(where, one.name)
        if not wanted and wanted != 0:
            continue
        maps = isinstance(wanted, Mapping)
        if wanted.keys() & there.keys() if maps else there not in (None, ()):
            message = f"names {_WORD_OF[one.name]}, which the request names besides"
            raise InvalidRequest.of(FIELD, message)
        more[one.name] = dict(sorted({**there, **wanted}.items())) if maps else wanted
    return replace(where, **more)


def read(text: str) -> Query:
    """Return the filter that *text* means.

    Raises InvalidRequest of the field ``query`` that says at which character what is wrong.
    """
    found = _Reading(text)
    while found.more():
        found.term()
    return found.query()


@dataclass(slots=True)
class _Reading(QueryText):
    """What was found so far of a query for tasks."""

    queue: str | None = None
    named: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    payload: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def query(self) -> Query:
        where = TaskFilter(tags=self.tags, payload=self.payload, **self.named)
        if self.words:
            if where.error is not None:
                self.fail(self.at, "has words beside error: put all of them into one error:")
            where = replace(where, error=" ".join(self.words))
        return Query(where, self.queue)

    def term(self) -> None:
        """Read the next term."""
        begin = self.at
        payload = _PAYLOAD.match(self.text, begin)
        if payload is not None:
            self.at = payload.end()
            self.payload_term(begin, payload[1])
            return
        typed = self.key()
        if typed is None:
            word = self.free_word()
            if word.startswith(ID_PREFIX):
                self.name(begin, "id_prefix", "id", task_id(word))
            else:
                self.words.append(word)
            return
        key = typed.lower()
        if key == "tag":
            self.tag_term(begin)
        elif key in _READ:
            of, reads = _READ[key]
            self.name(begin, of, key, self.value(begin, key, reads))
        else:
            self.no_key(begin, typed, ", ".join([*_READ, "tag", "payload.<path>"]))

    def tag_term(self, begin: int) -> None:
        pair = _TAG.match(self.text, self.at)
        if pair is None:
            self.unended()
            self.fail(begin, 'tag must be tag:key=value, or tag:"a key"="a value"')
        self.at = pair.end()
        key, value = unquoted(pair[1]), unquoted(pair[2])
        if key in self.tags:
            self.fail(begin, f"tag {key:.80} is named twice")
        self.tags[key] = value
        for tag, fault in limits.tags_faults(self.tags):
            self.fail(begin, f"tags {fault}" if tag is None else f"tag {tag:.80} {fault}")

    def payload_term(self, begin: int, path: str) -> None:
        parts = parts_of(path)
        fault = limits.text_fault(path, limits.PAYLOAD_PATH_BYTES)
        if parts is None or fault:
            self.fail(begin, f"payload path {fault or 'must be names with dots between'}")
        path, value = path_of(parts), self.word(begin)
        if path in self.payload:
            self.fail(begin, f"payload.{path:.80} is named twice")
        if fault := limits.text_fault(value, limits.PAYLOAD_VALUE_BYTES):
            self.fail(begin, f"payload.{path:.80} {fault}")
        self.payload[path] = value
        if len(self.payload) > limits.TAGS:
            self.fail(begin, f"payload must have at most {limits.TAGS} terms")

    def name(self, begin: int, of: str, name: str, value: object) -> None:
        there = self.queue if of == "queue" else self.named.get(of)
        if there is not None:
            self.fail(begin, f"{name} is named twice")
        if of == "queue":
            self.queue = str(value)
        else:
            self.named[of] = value


def _priority(text: str) -> Priority:
    if text not in [*Priority]:
        message = f"must be one of {', '.join(Priority)}"
        raise ValueError(message)
    return Priority(text)


def _fingerprint(text: str) -> str:
    if not FINGERPRINT_RE.fullmatch(text):
        message = f"must be {LENGTH} digits from 0 to f"
        raise ValueError(message)
    return text


_READ: Final[Mapping[str, tuple[str, ReadValue]]] = {
    "queue": ("queue", queue_name),
    "state": ("states", one_of(*STATE_WORDS)),
    "error": ("error", text_of(limits.ERROR_BYTES)),
    "worker": ("worker", text_of(limits.WORKER_BYTES)),
    "id": ("id_prefix", task_id),
    "attempts": ("min_attempts", whole_count),
    "after": ("scheduled_after", instant),
    "before": ("scheduled_before", instant),
    "priority": ("priority", _priority),
    "group": ("group_key", text_of(limits.GROUP_KEY_BYTES[1])),
    "fingerprint": ("fingerprint", _fingerprint),
}
"""Of each key the field of the filter, and what reads its value."""

_WORD_OF: Final = {name: key for key, (name, _) in _READ.items()}
_WORD_OF.update(tags="a tag", payload="a payload path")
