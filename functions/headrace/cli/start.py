"""The start of the command `headrace`."""

import sys
from collections.abc import Sequence

_INTERRUPTED = 130  # as shells report it


def main(args: Sequence[str] | None = None, *, name: str = "headrace") -> None:
    """Run *args*, else the command line of the process, and exit with its code."""
    try:
        from headrace.cli.main import main as command  # noqa: PLC0415  Ctrl-C may come during this
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)

    command(args=args, prog_name=name)
