"""How a program of ours looks for garbage: seldom, and not through what it has loaded.

Most of what a task takes is let go of as soon as it is done.  To look for the rest at each 700 new
objects, as Python does before 3.13, took 3 to 4 % of the CPU of a worker over a file, and found
some 300 objects in 4,000 tasks.
"""

import gc
from typing import Final

_OBJECTS: Final = 5_000


def look_seldom() -> None:
    """Look for garbage at each 5,000 new objects; a program calls it before it loads others' code.

    That may know better, and choose for itself.
    """
    gc.set_threshold(_OBJECTS)


def leave_loaded() -> None:
    """Never look again through what is loaded by now: it stays."""
    gc.collect()
    gc.freeze()
