"""The query language of tasks: the filter that a text means, and the text of a filter."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import EVERY_TASK, STATE_WORDS, TaskFilter, statuses_of
from headrace.domain.fingerprints import FINGERPRINT_RE, LENGTH
from headrace.domain.query_grammar import (
    FIELD,
    QueryTerm,
    QueryText,
    ReadValue,
    one_of,
    queue_name,
    since,
    since_text,
    task_id,
    term_text,
    text_of,
    whole_count,
)
from headrace.domain.task import Priority, Status
from headrace.domain.texts import PATH, QUOTED, parts_of, path_of, quoted, unquoted

T = TypeVar("T")

ID_PREFIX: Final = "tsk_"

_PAYLOAD: Final = re.compile(rf"payload\.({PATH}):")
_TAG: Final = re.compile(rf"({QUOTED}|[^\s\"=]+)(?:=({QUOTED}|[^\s\"]*))?(?=\s|\Z)")
_BARE_TAG: Final = re.compile(r'[^\s"\\=,]+')
_ONE_VALUE: Final = ("error", "payload", "fingerprint", "worker", "version", "group", "priority",
                     "attempts", "after", "before", "id")  # fmt: skip
_FUNCTION: Final = "task"  # the member of a payload that names the function


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
        text = _tag(key) if value is None else f"{_tag(key)}={_tag(value)}"
        yield f"tag:{text}", _but(query, tags=rest)
    for path, value in where.payload.items():
        rest = {name: text for name, text in where.payload.items() if name != path}
        key = _FUNCTION if path == _FUNCTION else f"payload.{path}"
        yield term_text(key, value), _but(query, payload=rest)
    for key in _ONE_VALUE:
        name = _READ[key][0]
        value = getattr(where, name)
        if value is not None:
            written = since_text(value) if key in ("after", "before") else value
            yield term_text(key, written), _but(query, **{name: None})
    for place, group in enumerate(where.either):
        text = " OR ".join(query_text(Query(one)) for one in group)
        yield text, _but(query, either=_all_but(place, where.either))
    for place, one in enumerate(where.without):
        yield f"-{query_text(Query(one))}", _but(query, without=_all_but(place, where.without))


def _all_but(place: int, some: tuple[T, ...]) -> tuple[T, ...]:
    return some[:place] + some[place + 1 :]


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
    return _Reading(text).query()


@dataclass(frozen=True, slots=True)
class _Term:
    """One term: its key, the field of the filter, and the value for it."""

    key: str
    field: str
    value: Any

    @property
    def where(self) -> TaskFilter:
        return TaskFilter(**{self.field: self.value})


_WORDS: Final = "words"


@dataclass(slots=True)
class _Reading(QueryText[_Term]):
    """What was found so far of a query for tasks."""

    named: dict[str, Any] = field(default_factory=dict)
    either: list[tuple[TaskFilter, ...]] = field(default_factory=list)
    without: list[TaskFilter] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def query(self) -> Query:
        """Read all terms."""
        for group in self.groups():
            if len(group) > 1 and not all(self._is_state(one) for one in group):
                self.either.append(tuple(map(self._alternative, group)))
                continue
            first = group[0]
            states = (state for one in group if self._is_state(one) for state in one.term.value)
            if self._is_state(first):
                self._name(first.begin, _Term("state", "states", tuple(dict.fromkeys(states))))
            elif first.excluded and first.term.field == "states":
                self._name(first.begin, self._other_states(first))
            elif first.excluded:
                self.without.append(self._comparable(first))
            else:
                self._name(first.begin, first.term)
        queue = self.named.pop("queue", None)
        where = TaskFilter(**self.named, either=tuple(self.either), without=tuple(self.without))
        if self.words:
            if where.error is not None:
                self.fail(self.at, "has words beside error: put all of them into one error:")
            where = replace(where, error=" ".join(self.words))
        return Query(where, queue)

    @staticmethod
    def _is_state(one: QueryTerm[_Term]) -> bool:
        return one.term.field == "states" and not one.excluded

    def _other_states(self, one: QueryTerm[_Term]) -> _Term:
        left = {*Status}.difference(*map(statuses_of, one.term.value))
        if not left:
            self.fail(one.begin, "state excludes every state")
        return _Term("state", "states", tuple(str(state) for state in Status if state in left))

    def _alternative(self, one: QueryTerm[_Term]) -> TaskFilter:
        where = self._comparable(one)
        return TaskFilter(without=(where,)) if one.excluded else where

    def _comparable(self, one: QueryTerm[_Term]) -> TaskFilter:
        """Return the filter of a term that OR joins or that is excluded."""
        if one.term.field in ("queue", "states", "scheduled_after", "scheduled_before"):
            self.fail(
                one.begin, f"{one.term.key} cannot be excluded, or joined by OR to other keys"
            )
        return one.term.where if one.term.field != _WORDS else TaskFilter(error=one.term.value)

    def _name(self, begin: int, term: _Term) -> None:
        """Add a term that must hold."""
        if term.field == _WORDS:
            self.words.append(term.value)
            return
        there = self.named.get(term.field)
        if not isinstance(term.value, dict):
            if there is not None:
                self.fail(begin, f"{term.key} is named twice")
            self.named[term.field] = term.value
            return
        (key,) = term.value
        if there is not None and key in there:
            name = f"tag {key:.80}" if term.field == "tags" else f"payload.{key:.80}"
            self.fail(begin, f"{name} is named twice")
        both = {**(there or {}), **term.value}
        if len(both) > limits.TAGS:
            self.fail(begin, f"{term.field} must have at most {limits.TAGS} terms")
        self.named[term.field] = both

    def term(self, begin: int) -> _Term:
        """Read the next term."""
        payload = _PAYLOAD.match(self.text, begin)
        if payload is not None:
            self.at = payload.end()
            return self.payload_term(begin, payload[1])
        typed = self.key()
        if typed is None:
            return self.words_term()
        key = typed.lower()
        if key == "tag":
            return self.tag_term(begin)
        if key == _FUNCTION:
            return self.payload_term(begin, _FUNCTION)
        if key not in _READ:
            self.no_key(begin, typed, ", ".join([*_READ, "tag", _FUNCTION, "payload.<path>"]))
        of, reads = _READ[key]
        return _Term(key, of, self.value(begin, key, reads))

    def words_term(self) -> _Term:
        """Read words up to the next key or operator as one text; only one word behind a minus."""
        words = [self.free_word()]
        if words[0].startswith(ID_PREFIX):
            return _Term("id", "id_prefix", task_id(words[0]))
        while not self.excludes and self.more() and self.at_word() and not self._at_id():
            words.append(self.free_word())
        return _Term("words", _WORDS, " ".join(words))

    def _at_id(self) -> bool:
        return self.text.startswith(ID_PREFIX, self.at)

    def tag_term(self, begin: int) -> _Term:
        pair = _TAG.match(self.text, self.at)
        if pair is None:
            self.unended()
            self.fail(begin, 'tag must be tag:key, tag:key=value or tag:"a key"="a value"')
        self.at = pair.end()
        key, value = unquoted(pair[1]), None if pair[2] is None else unquoted(pair[2])
        for _, fault in limits.tags_faults({key: value or ""}):
            self.fail(begin, f"tag {key:.80} {fault}")
        return _Term("tag", "tags", {key: value})

    def payload_term(self, begin: int, path: str) -> _Term:
        parts = parts_of(path)
        fault = limits.text_fault(path, limits.PAYLOAD_PATH_BYTES)
        if parts is None or fault:
            self.fail(begin, f"payload path {fault or 'must be names with dots between'}")
        path, value = path_of(parts), self.word(begin)
        if fault := limits.text_fault(value, limits.PAYLOAD_VALUE_BYTES):
            self.fail(begin, f"payload.{path:.80} {fault}")
        return _Term("payload", "payload", {path: value})


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
    "version": ("version", text_of(limits.WORKER_BYTES)),
    "payload": ("payload_text", text_of(limits.PAYLOAD_VALUE_BYTES)),
    "id": ("id_prefix", task_id),
    "attempts": ("min_attempts", whole_count),
    "after": ("scheduled_after", since),
    "before": ("scheduled_before", since),
    "priority": ("priority", _priority),
    "group": ("group_key", text_of(limits.GROUP_KEY_BYTES[1])),
    "fingerprint": ("fingerprint", _fingerprint),
}
"""Of each key the field of the filter, and what reads its value."""

_WORD_OF: Final = {name: key for key, (name, _) in _READ.items()}
_WORD_OF.update(tags="a tag", payload="a payload path")
