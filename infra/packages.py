"""`python -m infra.packages`: what Lambda unpacks for each function that `sam build` made.

Exit status: 0 every package is small enough, has its bytecode with it and what its bill of
materials says, 1 one does not.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT

MOST_BYTES: Final = 60_000_000
_BUILT: Final = PROJECT_ROOT / ".aws-sam" / "build"
_BILLS: Final = PROJECT_ROOT / "build" / "bom"


def main(built: Path = _BUILT, bills: Path = _BILLS) -> int:
    """Print the packages in *built*, which *bills* tell of; return the exit status."""
    packages = sorted(built.glob("*Function"))
    wrong = {
        package.name: [*faults(package), *mistold(package, bills / f"{_bill(package)}.cdx.json")]
        for package in packages
    }
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
        yield "has no bytecode: each start would compile it again"


def mistold(package: Path, bill: Path) -> Iterator[str]:
    """Say in what a bill of materials differs from the libraries that are in the package."""
    materials = json.loads(bill.read_text())["components"]
    reported = {(each["name"], each["version"]) for each in materials}
    there = {
        (each.metadata["Name"].lower().replace("_", "-"), each.version)
        for each in distributions(path=[str(package)])
    }
    yield from (f"{name} {version} is not in {bill.name}" for name, version in there - reported)
    yield from (
        f"{name} {version} of {bill.name} is not in it" for name, version in reported - there
    )
    for each in materials:
        hashes = [one for link in each["externalReferences"] for one in link.get("hashes", [])]
        if not hashes or {one["alg"] for one in hashes} != {"SHA-256"}:
            yield f"{bill.name} has no hash of {each['name']}"


def _bill(package: Path) -> str:
    return "console" if package.name == "ConsoleFunction" else "functions"


if __name__ == "__main__":
    sys.exit(main())
