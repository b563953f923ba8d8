"""Makes the client for threads of the one for event loops: `python -m infra.unasync [--check]`.

What differs between the two is what the words below say, so nobody writes it twice.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[1] / "functions/headrace/client"
SOURCE: Final = CLIENT / "aio.py"
MADE: Final = CLIENT / "client.py"

_HEADER: Final = "# Made from aio.py by `make unasync`: change that one.\n"
_WORDS: Final = (
    # What only one of the two has, or says otherwise
    (r"with an event loop; ``client.py`` is made from it", "that wait for their answers"),
    (r"Tasks of one loop may share one", "Threads may share one"),
    (r"  # noqa: ASYNC\d+.*", ""),
    (
        r"class AsyncClient\(AsyncUploading, AsyncLooking\):",
        "class Client(Uploading, Batching, Looking):",
    ),
    (r"from headrace.client.batches import ", "from headrace.client.batches import Batching, "),
    # The language and its libraries
    (r"import asyncio\n", "import threading\nimport time\n"),
    (r"\basyncio\.Semaphore\b", "threading.Semaphore"),
    (r"\basyncio\b", "time"),
    (r"\bAwaitable, ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\basync_connections\b", "connections"),
    (r"\bawith_queues\b", "with_queues"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
)
_TIDY: Final = "I,C416,UP028"  # imports in order; a loop that is a list, or a `yield from`


def made_of(source: str) -> str:
    """The client for threads, from the *source* of the one for event loops."""
    for pattern, instead in _WORDS:
        source, found = re.subn(pattern, instead, source)
        if not found:
            raise LookupError(f"{SOURCE.name} has nothing that {pattern!r} is for")
    tidy = _ruff(_HEADER + source, "check", "--fix-only", "--unsafe-fixes", "--select", _TIDY)
    return _ruff(tidy, "format")


def _ruff(source: str, *arguments: str) -> str:
    ruff = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(MADE), "-"]
    done = subprocess.run(  # noqa: S603 (our own linter)
        ruff, input=source, stdout=subprocess.PIPE, text=True, check=True
    )
    return str(done.stdout)


def main(arguments: list[str], made_at: Path = MADE) -> int:
    """Write the client for threads, or check it; the exit code says whether it was as it should."""
    made = made_of(SOURCE.read_text(encoding="utf-8"))
    if arguments != ["--check"]:
        made_at.write_text(made, encoding="utf-8")
    elif made_at.read_text(encoding="utf-8") != made:
        print(f"{MADE.name} is not what {SOURCE.name} makes: run `make unasync`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
