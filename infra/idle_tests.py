"""List the tests that run no branch of the product that other tests do not run too.

    make coverage && python -m infra.idle_tests [FOLDER]

Such a test may still assert what others do not: read it before you remove it.
"""

import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT

DATA: Final = PROJECT_ROOT / "build" / "coverage"
_ARCS: Final = """
    SELECT arc.file_id, arc.fromno, arc.tono, context.context
    FROM arc JOIN context ON context.id = arc.context_id WHERE context.context != ''
"""


def unique_branches(data: Path) -> Counter[str]:
    """Return for each test function the number of branches that no other test function runs."""
    runs: dict[tuple[int, int, int], set[str]] = {}
    with sqlite3.connect(data) as connection:
        for file, start, end, context in connection.execute(_ARCS):
            function = context.partition("|")[0].partition("[")[0]
            runs.setdefault((file, start, end), set()).add(function)
    unique: Counter[str] = Counter()
    for functions in runs.values():
        unique.update(functions if len(functions) == 1 else dict.fromkeys(functions, 0))
    return unique


def main() -> int:
    """Print the tests that add no branch, in the folder that the command line names."""
    folder = sys.argv[1] if len(sys.argv) > 1 else ""
    unique = unique_branches(DATA)
    idle = sorted(test for test, count in unique.items() if not count and test.startswith(folder))
    print(*idle, sep="\n")
    print(f"{len(idle)} of {len(unique)} tests add no branch", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
