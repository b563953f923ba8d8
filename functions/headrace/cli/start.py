"""The start of the command `headrace`."""

import sys
from collections.abc import Sequence

_INTERRUPTED = 130  # as a shell says it


def main(args: Sequence[str] | None = None, *, name: str = "headrace") -> None:
    """Run *args*, else the command line of this process, and leave it with the exit code."""
    try:
        from headrace.cli.main import main as command  # noqa: PLC0415  Ctrl-C may come during this
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)

    command(args=args, prog_name=name)
