"""What is wrong with a value that is beyond a limit: one wording, whatever surface took it."""

import math
import subprocess
import sys

import pytest

from headrace.domain import limits
from headrace.domain.texts import escape_unseen


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("é" * 5, "must be at most 8 bytes of UTF-8; it is 10"),
        ("", "must not be empty"),
        (7, "must be a string"),
        (None, "must be a string"),
        ("a\ud800", "must be text; it has half of a surrogate pair"),
    ],
)
def test_a_wrong_text_is_reported_with_its_limit(value: object, fault: str) -> None:
    assert limits.text_fault(value, 8, 1) == fault


@pytest.mark.parametrize(
    "value",
    [
        0,
        43_201,
        math.nan,
        -math.inf,
        "5",
        True,
    ],
)
def test_a_wrong_number_is_reported_with_its_bounds_and_unit(value: object) -> None:
    assert limits.number_fault(value, (1, 43_200), unit="seconds") == (
        f"must be a number from 1 to 43200 seconds, not {value!r}"
    )


# -- characters that a terminal obeys or a reader cannot see ---------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢\u3000字", "plain é 漢\u3000字"),
        ("\x1b[2J\x7f", r"\x1b[2J\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb", r"a\rb"),
        ("a\tb\r\nc", "a\tb\r\nc"),
        ("\u202egnp\u200b", r"\u202egnp\u200b"),
        ("\u2066left\u2069 \u061c\ufeff\u2028", r"\u2066left\u2069 \u061c\ufeff\u2028"),
        ("שלום café 👩\u200d🚀 1\u202f000", "שלום café 👩\u200d🚀 1\u202f000"),
        ("\U000e0041\ud800", r"\U000e0041\ud800"),
    ],
)
def test_unseen_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_unseen(text) == shown


def test_a_caller_may_choose_the_escape() -> None:
    assert escape_unseen("a\u202eb", lambda sign: f"<{ord(sign):x}>") == "a<202e>b"


# -- types that several threads use first at the same time -----------------------------------------

# Ends with a segmentation fault within the first of these where msgspec itself is called.
PROGRAM = """
import sys, threading
from dataclasses import make_dataclass
from msgspec import Struct, defstruct
from headrace.domain.values import convert, decoder

sys.setswitchinterval(1e-6)
inner = [(f"f{n}", int | None, None) for n in range(40)]
for turn in range(30):
    make = (make_dataclass, defstruct)[turn % 2]
    parts = [make(f"N{k}", inner) for k in range(5)]
    fields = [(f"g{k}", part | None, None) for k, part in enumerate(parts)]
    whole = make("Whole", [*fields, ("n", int, 0)])
    barrier, seen = threading.Barrier(4), []

    def look():
        barrier.wait()
        seen.append(convert({"n": 3}, whole).n)
        seen.append(decoder(whole).decode(b'{"n": 4}').n)

    threads = [threading.Thread(target=look) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(seen) == [3] * 4 + [4] * 4
"""


def test_threads_that_first_use_a_type_together_do_not_crash_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
