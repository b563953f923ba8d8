"""Queries of lists without an index: each of a row's values is compared.

The terms are those of ``domain.query``, and a row must match all of them.  A word without a key
matches a part of any text of the row, in upper or lower case.  Of a key with several values, one
must match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headrace.domain.query import QueryText, ReadValue, term_text, word_text

Row = TypeVar("Row")
Fits: TypeAlias = Callable[[Any, Any], bool]
"""Returns whether a row's value fits the wanted value."""


def equals(wanted: object, there: object) -> bool:
    """Return whether both are equal, or the row's value equals one of several wanted values."""
    return there in wanted if isinstance(wanted, tuple) else there == wanted


def contains(wanted: str, there: str) -> bool:
    """Return whether the row's value contains *wanted*, in upper or lower case."""
    return wanted.casefold() in there.casefold()


def starts_with(wanted: str, there: str) -> bool:
    """Return whether the row's value begins with *wanted*."""
    return there.startswith(wanted)


def at_or_after(wanted: datetime, there: datetime) -> bool:
    """Return whether the row's instant is at or after the wanted instant."""
    return there >= wanted


def is_before(wanted: datetime, there: datetime) -> bool:
    """Return whether the row's instant is before the wanted instant."""
    return there < wanted


@dataclass(frozen=True, slots=True)
class ListKey(Generic[Row]):
    """A key: how to read its wanted value, the values of a row, and how to compare them."""

    reads: ReadValue
    values: Callable[[Row, datetime], Iterable[Any]]
    fits: Fits = equals


@dataclass(frozen=True, slots=True)
class _Term(Generic[Row]):
    """One term as it is written, and the function that compares a row with it."""

    text: str
    matches: Callable[[Row, datetime], bool] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ListQuery(Generic[Row]):
    """A query of a list; ``named`` has the wanted values by their keys."""

    terms: tuple[_Term[Row], ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text of this query; a cursor is valid only for the same text."""
        return " ".join(term.text for term in self.terms)

    def matches(self, row: Row, now: datetime) -> bool:
        """Return whether *row* matches every term at *now*."""
        return all(term.matches(row, now) for term in self.terms)

    def without_each(self) -> Iterator[tuple[str, str]]:
        """Yield each term, and the text of the query without it."""
        texts = [term.text for term in self.terms]
        for place, text in enumerate(texts):
            yield text, " ".join([*texts[:place], *texts[place + 1 :]])


EVERY_ROW: Final[ListQuery[Any]] = ListQuery()
"""The query that every row matches."""


@dataclass(frozen=True, slots=True)
class ListLanguage(Generic[Row]):
    """The keys of one list, and the texts of a row that are searched for words."""

    keys: Mapping[str, ListKey[Row]]
    texts: Callable[[Row], Iterable[str]]

    def read(self, text: str) -> ListQuery[Row]:
        """Return the query that *text* means.

        Raises InvalidRequest for the field ``query``, with the position of the fault in the text.
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
            if key.fits is equals:
                yield from (_written(name, value) for value in key.values(row, now) if value != "")

    def _word(self, word: str) -> _Term[Row]:
        def matches(row: Row, _now: datetime) -> bool:
            return any(contains(word, text) for text in self.texts(row))

        return _Term(word_text(word), matches)


def _named(name: str, key: ListKey[Row], wanted: object) -> _Term[Row]:
    def matches(row: Row, now: datetime) -> bool:
        return any(key.fits(wanted, there) for there in key.values(row, now))

    return _Term(_written(name, wanted), matches)


def _written(name: str, value: object) -> str:
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return term_text(name, value)


_CALL: Final = re.compile(r'\s*\{\s*"task"\s*:\s*"([\w.<>:-]{1,200})"')


def called_function(payload: str | None) -> str:
    """Return the name of the function that *payload* calls; empty where it is no call."""
    found = _CALL.match(payload or "")
    return found[1] if found else ""
