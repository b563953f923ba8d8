"""`python -m tests.bench.packages`: what Lambda unpacks for each function that `sam build` made.

Exit status: 0 every package is small enough and has its bytecode with it, 1 one does not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.local.engine import PROJECT_ROOT

MOST_BYTES: Final = 60_000_000
_BUILT: Final = PROJECT_ROOT / ".aws-sam" / "build"


def main(built: Path = _BUILT) -> int:
    """Print the packages in *built*; return the exit status."""
    packages = sorted(folder for folder in built.iterdir() if folder.is_dir())
    wrong = {package.name: list(faults(package)) for package in packages}
    print("Packages, unpacked:")
    for package in packages:
        print(f"  {package.name:<20} {size(package) / 1e6:5.1f} MB")
    for name, found in wrong.items():
        for fault in found:
            print(f"{name}: {fault}", file=sys.stderr)
    return 1 if not packages or any(wrong.values()) else 0


def size(package: Path) -> int:
    """Return the bytes of all files."""
    return sum(file.stat().st_size for file in package.rglob("*") if file.is_file())


def faults(package: Path) -> Iterator[str]:
    """Say what would make a function slow to start."""
    if size(package) > MOST_BYTES:
        yield f"has {size(package)} bytes; at most {MOST_BYTES}"
    sources = [file for file in package.rglob("*.py") if "botocore" in file.parts]
    compiled = [file for file in package.rglob("*.pyc") if "botocore" in file.parts]
    if len(compiled) < len(sources):
        yield "has no bytecode: each start would compile it anew"


if __name__ == "__main__":
    sys.exit(main())
