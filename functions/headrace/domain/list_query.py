"""Queries of lists without an index: each of a row's values is compared.

The grammar is that of ``domain.query_grammar``.  A word without a key matches a part of any text of
the row, in upper or lower case.  Of a key with several values, one must match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headrace.domain.filters import instant_before
from headrace.domain.query_grammar import (
    QueryText,
    ReadValue,
    since,
    since_text,
    term_text,
    word_text,
)

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
    """One term as it is written, what compares a row with it, and the wanted values by key."""

    text: str
    matches: Callable[[Row, datetime], bool] = field(repr=False, compare=False)
    wanted: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ListQuery(Generic[Row]):
    """A query of a list; ``named`` has the wanted values by their keys.

    Keys of terms that are excluded, or joined by OR, are only in ``keys``.
    """

    terms: tuple[_Term[Row], ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def keys(self) -> frozenset[str]:
        """All keys that the query compares."""
        return frozenset(key for term in self.terms for key in term.wanted)

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
        reading = _ListReading(text, language=self)
        terms: list[_Term[Row]] = []
        named: dict[str, Any] = {}
        for group in reading.groups():
            first = group[0]
            if len(group) == 1 and not first.excluded:
                for key, wanted in first.term.wanted.items():
                    if key in named:
                        reading.fail(first.begin, f"{key} is named twice")
                    named[key] = wanted
            terms.append(
                _any_of([_excluded(one.term) if one.excluded else one.term for one in group])
            )
        return ListQuery(tuple(terms), named)

    def terms_of(self, row: Row, now: datetime) -> Iterator[str]:
        """Yield the terms that would find *row*, of the keys whose values are compared whole."""
        for name, key in self.keys.items():
            if key.fits is equals:
                yield from (_written(name, value) for value in key.values(row, now) if value != "")


@dataclass(slots=True)
class _ListReading(QueryText["_Term[Row]"], Generic[Row]):
    language: ListLanguage[Row] = field(kw_only=True)

    def term(self, begin: int) -> _Term[Row]:
        typed = self.key()
        if typed is None:
            return _word(self.language, self.free_word())
        name = typed.lower()
        key = self.language.keys.get(name)
        if key is None:
            self.no_key(begin, typed, ", ".join(self.language.keys))
        return _named(name, key, self.value(begin, name, key.reads))


def _word(language: ListLanguage[Row], word: str) -> _Term[Row]:
    def matches(row: Row, _now: datetime) -> bool:
        return any(contains(word, text) for text in language.texts(row))

    return _Term(word_text(word), matches)


def _named(name: str, key: ListKey[Row], wanted: Any) -> _Term[Row]:  # noqa: ANN401  the reader's type
    def matches(row: Row, now: datetime) -> bool:
        value = instant_before(wanted, now) if key.reads is since else wanted
        return any(key.fits(value, there) for there in key.values(row, now))

    written = since_text(wanted) if key.reads is since else wanted
    return _Term(_written(name, written), matches, {name: wanted})


def _excluded(term: _Term[Row]) -> _Term[Row]:
    def matches(row: Row, now: datetime) -> bool:
        return not term.matches(row, now)

    return _Term(f"-{term.text}", matches, term.wanted)


def _any_of(terms: Sequence[_Term[Row]]) -> _Term[Row]:
    def matches(row: Row, now: datetime) -> bool:
        return any(term.matches(row, now) for term in terms)

    if len(terms) == 1:
        return terms[0]
    wanted = {key: value for term in terms for key, value in term.wanted.items()}
    return _Term(" OR ".join(term.text for term in terms), matches, wanted)


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
