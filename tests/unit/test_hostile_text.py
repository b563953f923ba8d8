"""Text from outside costs time in proportion to its length, whatever it holds.

Each parser reads 30 KB of what regular expressions with nested or adjacent repetitions are slow
at: with the square of the length, such a text would take ten seconds and more.  CPU time of the
thread counts, so that a busy machine changes nothing.
"""

import enum
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

import pytest

from console.chalicelib.forms import FormErrors
from console.chalicelib.setting_fields import read_settings, texts_of
from headrace.client.app.signature import Signature
from headrace.domain import (
    access,
    fingerprints,
    indexing,
    list_query,
    query,
    times,
)
from headrace.domain.errors import HeadraceError, InvalidRequest
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.texts import escape_unseen, parts_of
from headrace.ops.scheduling.cron import read_cron

LENGTH: Final = 30_000
SECONDS: Final = 1.0
"""Ten times what the slowest parser takes; the square of the length would be ten seconds."""

PIECES: Final = (
    *("a", " ", '"', "\\", '\\"', '"\\', "a.", "a=", "a,", "a ", '"a', '""', "a=b,", '"a"="b",'),
    *("1", "1.", "1d", "* ", "*/1,", "*", "\n", "[", ":", "/", "%41", " - at `$", "`key` in `$`"),
    *("\u202e", "0-", "'"),
)
BEFORE: Final = ("", '"', "payload.")
BEHIND: Final = ("x", '"')


class Colour(enum.Enum):
    RED = "red"


def paint(colour: Colour, size: Literal["s", "l"]) -> None: ...


PAINT: Final = Signature.of(paint)
USUAL: Final = texts_of(QueueSettings())


def read_form(text: str) -> object:
    """Read the form of a queue's settings with *text* in every field."""
    return read_settings(dict.fromkeys(USUAL, text), QueueSettings(), FormErrors())


PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "query": query.read,
    "payload path": parts_of,
    "indexed field": lambda text: indexing.fields_fault([text]),
    "called function": list_query.called_function,
    "tags in a form": lambda text: FormErrors().tags("tag", text),
    "settings form": read_form,
    "length of time": times.read_duration,
    "cron": read_cron,
    "fingerprint": lambda text: fingerprints.fingerprint(text, text),
    "pattern of queues": lambda text: access.covers(text, "a" * 128),
    "name in a pattern": lambda text: access.covers("a*a*a*b", text),
    "argument of an Enum": lambda text: PAINT.typed({"colour": text, "size": "s"}),
    "argument of a Literal": lambda text: PAINT.typed({"colour": "red", "size": text}),
    "escaping": escape_unseen,
}


def hostile_texts() -> list[str]:
    """Return texts of LENGTH that repeat one piece, with something before and behind it."""
    return [
        before + (piece * (LENGTH // len(piece))) + behind
        for piece, before, behind in itertools.product(PIECES, BEFORE, BEHIND)
    ]


TEXTS: Final = hostile_texts()


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_takes_time_in_proportion_to_the_text(name: str) -> None:
    slowest, worst = 0.0, ""
    for text in TEXTS:
        began = time.thread_time()
        with suppress(ValueError, TypeError, HeadraceError):
            PARSERS[name](text)
        if time.thread_time() - began > slowest:
            slowest, worst = time.thread_time() - began, text
        if slowest > SECONDS:
            break

    assert slowest < SECONDS, f"{worst[:20]!r}…{worst[-3:]!r}"


def test_what_is_wrong_with_a_long_argument_is_said_in_short() -> None:
    with pytest.raises(InvalidRequest) as refused:
        PAINT.typed({"colour": "red", "size": "x" * LENGTH + " - at `$.y`"})

    assert "args.size" in str(refused.value)
    assert "… [cut]" in str(refused.value)
    assert len(str(refused.value)) < 1000
