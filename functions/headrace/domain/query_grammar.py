"""The grammar of queries: terms, their values, and the operators.

Terms stand beside each other, and all of them must hold.  ``OR`` stands between two terms of which
one is enough; it binds closer than the space.  A minus or ``NOT`` before a term excludes it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import Since
from headrace.domain.texts import QUOTED, quoted, unquoted
from headrace.domain.times import duration_text, read_duration

FIELD: Final = "query"
"""The field that errors name."""

T = TypeVar("T")

ReadValue: TypeAlias = Callable[[str], Any]
"""Reads the value of a key.  Raises ValueError that says what it must be."""

_KEY: Final = re.compile(r"([A-Za-z_]+):")
_WORD: Final = re.compile(rf"({QUOTED}|[^\s\"]+)(?=\s|\Z)")
_SPACE: Final = re.compile(r"\s*")
_OR: Final = re.compile(r"OR(?=\s|\Z)")
_NOT: Final = re.compile(r"-(?=[^\s-])|NOT\s+(?=\S)")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_BARE: Final = re.compile(r'[^\s"\\]+')


@dataclass(frozen=True, slots=True)
class QueryTerm(Generic[T]):
    """A term, where it begins, and whether it is excluded."""

    begin: int
    excluded: bool
    term: T


@dataclass(slots=True)
class QueryText(ABC, Generic[T]):
    """A text that is read term by term: how far it is read is ``at``.

    ``excludes`` is whether the term that is read now is excluded.
    """

    text: str
    at: int = 0
    excludes: bool = False

    def __post_init__(self) -> None:
        if len(self.text) > limits.QUERY:
            message = f"must be at most {limits.QUERY} characters, not {len(self.text)}"
            raise InvalidRequest.of(FIELD, message)

    @abstractmethod
    def term(self, begin: int) -> T:
        """Read the next term, which begins at *begin*."""

    def groups(self) -> Iterator[list[QueryTerm[T]]]:
        """Yield the terms in groups: the alternatives of an OR, or one term."""
        group: list[QueryTerm[T]] = []
        joins = True
        while self.more():
            begin = self.at
            if self._reads(_OR):
                if joins:
                    self.fail(begin, "OR must stand between two terms")
                joins = True
                continue
            if group and not joins:
                yield group
                group = []
            self.excludes = self._reads(_NOT)
            group.append(QueryTerm(begin, self.excludes, self.term(self.at)))
            joins = False
        if group and joins:
            self.fail(self.at, "OR must stand between two terms")
        if group:
            yield group

    def _reads(self, sign: re.Pattern[str]) -> bool:
        found = sign.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def at_word(self) -> bool:
        """Return whether a word without a key comes next, and no operator."""
        operator = _OR.match(self.text, self.at) or _NOT.match(self.text, self.at)
        return not operator and not _KEY.match(self.text, self.at)

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


def since_text(value: Since) -> str | datetime:
    """Return an instant, or seconds as they are typed."""
    return value if isinstance(value, datetime) else duration_text(value)


def word_text(text: str) -> str:
    """Return *text* so that it is read as one word without a key."""
    bare = _BARE.fullmatch(text) and text.isprintable() and not _KEY.match(text)
    operator = text.startswith("-") or text in ("OR", "NOT")
    return text if bare and not operator else quoted(text)


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


_LONGEST: Final = 10 * 366 * 86_400  # seconds before now


def since(text: str) -> Since:
    """Read an instant, in UTC unless it says otherwise, or seconds before now."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        seconds = read_duration(text)
        if seconds <= _LONGEST:
            return seconds
    except ValueError:
        pass
    message = "must be a date and time as 2026-11-21T08:00Z, or how long ago as 90s, 1h or 14d"
    raise ValueError(message)
