"""The command `headrace`, also as `python -m headrace`."""

import sys
from collections.abc import Sequence
from typing import Final

_INTERRUPTED: Final = 130  # as shells report it


def main(args: Sequence[str] | None = None, *, name: str = "headrace") -> None:
    """Run *args*, else the command line of the process, and exit with its code."""
    try:
        from headrace.cli.main import main as command  # noqa: PLC0415  Ctrl-C may come during this
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)

    command(args=args, prog_name=name)


if __name__ == "__main__":
    main()
