"""Queries of lists without an index: each of a row's values is compared.

The terms are those of ``query_grammar``, and all must hold.  A word without a key is a part of any
text of the row, in whichever case.  A key that may have several values is met by one of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headrace.domain.query import QueryText, ReadValue, written_term, written_word

Row = TypeVar("Row")
Fits: TypeAlias = Callable[[Any, Any], bool]
"""Returns whether a row's value fits the wanted value."""


def exactly(wanted: object, there: object) -> bool:
    """Return whether both are equal, or the row's value equals one of several wanted values."""
    return there in wanted if isinstance(wanted, tuple) else there == wanted


def a_part(wanted: str, there: str) -> bool:
    """Return whether the row's value contains *wanted*, in upper or lower case."""
    return wanted.casefold() in there.casefold()


def the_beginning(wanted: str, there: str) -> bool:
    """Return whether the row's value begins with *wanted*."""
    return there.startswith(wanted)


def not_before(wanted: datetime, there: datetime) -> bool:
    """Return whether the row's instant is at or after the wanted instant."""
    return there >= wanted


def earlier(wanted: datetime, there: datetime) -> bool:
    """Return whether the row's instant is before the wanted instant."""
    return there < wanted


@dataclass(frozen=True, slots=True)
class ListKey(Generic[Row]):
    """A key: how its value is read, which values a row has of it, and when they fit."""

    reads: ReadValue
    values: Callable[[Row, datetime], Iterable[Any]]
    fits: Fits = exactly


@dataclass(frozen=True, slots=True)
class _Term(Generic[Row]):
    """One term as it is written, and what tells whether a row has it."""

    text: str
    means: Callable[[Row, datetime], bool] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ListQuery(Generic[Row]):
    """What a text asks of a list; ``named`` are the values by their keys."""

    terms: tuple[_Term[Row], ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text that is read as this query: a cursor is good for one such text only."""
        return " ".join(term.text for term in self.terms)

    def means(self, row: Row, now: datetime) -> bool:
        """Return whether *row* fulfils the whole query at *now*."""
        return all(term.means(row, now) for term in self.terms)

    def without_each(self) -> Iterator[tuple[str, str]]:
        """Yield each term, and the text of the query without it."""
        texts = [term.text for term in self.terms]
        for place, text in enumerate(texts):
            yield text, " ".join([*texts[:place], *texts[place + 1 :]])


EVERY_ROW: Final[ListQuery[Any]] = ListQuery()
"""What asks for nothing in particular."""


@dataclass(frozen=True, slots=True)
class ListLanguage(Generic[Row]):
    """The keys of one list, and the texts of a row in which words are looked for."""

    keys: Mapping[str, ListKey[Row]]
    texts: Callable[[Row], Iterable[str]]

    def read(self, text: str) -> ListQuery[Row]:
        """Return the query that *text* means.

        Raises InvalidRequest of the field ``query`` that says at which character what is wrong.
        """
        reading = QueryText(text)
        terms: list[_Term[Row]] = []
        named: dict[str, Any] = {}
        while reading.more():
            begin = reading.at
            typed = reading.key()
            if typed is None:
                terms.append(self._word(reading.free_word()))
                continue
            name = typed.lower()
            key = self.keys.get(name)
            if key is None:
                reading.no_key(begin, typed, ", ".join(self.keys))
            if name in named:
                reading.fail(begin, f"{name} is named twice")
            named[name] = reading.value(begin, name, key.reads)
            terms.append(_named(name, key, named[name]))
        return ListQuery(tuple(terms), named)

    def terms_of(self, row: Row, now: datetime) -> Iterator[str]:
        """Yield the terms that would find *row*, of the keys whose values are compared whole."""
        for name, key in self.keys.items():
            if key.fits is exactly:
                yield from (_written(name, value) for value in key.values(row, now) if value != "")

    def _word(self, word: str) -> _Term[Row]:
        def means(row: Row, _now: datetime) -> bool:
            return any(a_part(word, text) for text in self.texts(row))

        return _Term(written_word(word), means)


def _named(name: str, key: ListKey[Row], wanted: object) -> _Term[Row]:
    def means(row: Row, now: datetime) -> bool:
        return any(key.fits(wanted, there) for there in key.values(row, now))

    return _Term(_written(name, wanted), means)


def _written(name: str, value: object) -> str:
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return written_term(name, value)


_CALL: Final = re.compile(r'\s*\{\s*"task"\s*:\s*"([\w.<>:-]{1,200})"')


def called_function(payload: str | None) -> str:
    """Return the name of the function that *payload* calls; empty where it is no call."""
    found = _CALL.match(payload or "")
    return found[1] if found else ""
