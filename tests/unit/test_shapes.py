"""A class that several threads meet first at the same time is learnt by one of them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

import headrace
from headrace.shapes import convert

# Ends with a segmentation fault within the first of these where msgspec itself is called.
PROGRAM = """
import sys, threading
from dataclasses import make_dataclass
from msgspec import Struct, defstruct
from headrace.shapes import convert, decoder

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


def test_threads_that_meet_a_class_first_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_type_that_has_no_hash_is_converted_to() -> None:
    assert convert(3, Annotated[int, ["a list"]]) == 3
    with pytest.raises(msgspec.ValidationError):
        convert("3", Annotated[int, ["a list"]])


@pytest.mark.parametrize(
    "call", [r"msgspec\.convert\(", r"from msgspec import .*\bconvert\b", r"^    .*json\.Decoder\("]
)
def test_nobody_else_has_msgspec_learn_a_class_while_threads_run(call: str) -> None:
    package = Path(headrace.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(call, path.read_text(), re.MULTILINE)
    }

    assert found <= {"shapes.py"}
