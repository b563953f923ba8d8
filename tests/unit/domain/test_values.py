"""A class that several threads meet first at the same time is learnt by one of them."""

import subprocess
import sys

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


def test_threads_that_meet_a_class_first_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
