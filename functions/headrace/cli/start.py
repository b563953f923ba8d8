"""Where the command `headrace` starts: with what to install, where its libraries are missing."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

_NEEDED = ("click", "rich")
_INTERRUPTED = 130  # as a shell says it


def main(args: Sequence[str] | None = None, *, name: str = "headrace") -> None:
    """Run *args*, else the command line of this process, and leave it with the exit code."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            "error: the command needs Python packages that are not here"
            f" ({', '.join(missing)}): pip install 'headrace[cli]'"
        )
    try:
        from headrace.cli.main import main as command  # noqa: PLC0415 (imports them)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)

    command(args=args, prog_name=name)
