"""The grammar of queries: terms with spaces between, keys, quotes, and where a mistake is.

Which keys there are is the business of each list: ``query`` has those of tasks, ``list_query``
what all other lists share.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.payload_paths import QUOTED, quoted, unquoted

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
        """Go on to the next term; tell whether there is one."""
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
        """Read a word, or what stands in quotes, of the term that begins at *begin*."""
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

    def value(self, begin: int, key: str, reads: ReadValue) -> Any:  # noqa: ANN401  of its own type
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


def written_term(key: str, value: object) -> str:
    """Return the term that is read as *key* with *value*."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    text = str(value)
    return f"{key}:{text if _BARE.fullmatch(text) and text.isprintable() else quoted(text)}"


def written_word(text: str) -> str:
    """Return *text* so that it is read as one word without a key."""
    bare = _BARE.fullmatch(text) and text.isprintable() and not _KEY.match(text)
    return text if bare else quoted(text)


def text_of(most: int) -> ReadValue:
    """Return what reads a text of 1 to *most* bytes."""
    return partial(_text, most)


def _text(most: int, text: str) -> str:
    if fault := limits.text_fault(text, most, 1):
        raise ValueError(fault)
    return text


def one_of(*words: str) -> ReadValue:
    """Return what reads one or more of *words* with commas between, in whichever case."""
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
