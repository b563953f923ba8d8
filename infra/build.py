"""Build the Lambda packages into .aws-sam/ with AWS SAM, and check them.

Each package gets a bill of materials in build/bom/, in the format of CycloneDX: every library, its
version and its hashes.  ``--if-changed`` builds only after a change, and checks nothing.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT, packages, starts

TOOLS: Final = PROJECT_ROOT / ".venv-build" / "bin"
BUILT: Final = PROJECT_ROOT / ".aws-sam" / "build" / "template.yaml"
BILLS: Final = PROJECT_ROOT / "build" / "bom"
# AWS tools ask for a region even if they send nothing.
ENVIRONMENT: Final = {
    "PATH": f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}",
    "PYTHONPATH": "",
    "SAM_CLI_TELEMETRY": "0",
    "AWS_DEFAULT_REGION": os.environ.get("AWS_DEFAULT_REGION", "us-east-1"),
}


def main(arguments: list[str]) -> int:
    """Build, with *arguments* for `sam build`; return the exit status."""
    if arguments[:1] == ["--if-changed"]:
        return 0 if is_current() else build(arguments[1:])
    return build(arguments) or bills() or packages.main() or starts.main()


def is_current() -> bool:
    """Return whether nothing has changed since the last build."""
    if not BUILT.exists():
        return False
    built = BUILT.stat().st_mtime
    sources = [
        file
        for folder in ("functions", "console")
        for file in (PROJECT_ROOT / folder).rglob("*")
        if file.is_file() and not {"__pycache__"} & {*file.parts} and ".egg-info" not in str(file)
    ]
    sources += [PROJECT_ROOT / "template.yaml", *nested_templates()]
    return all(file.stat().st_mtime <= built for file in sources)


def nested_templates() -> list[Path]:
    return sorted((PROJECT_ROOT / "infra").glob("*.yaml"))


def build(arguments: list[str]) -> int:
    """Check the Dockerfile and the templates, and build every package."""
    sam = [str(TOOLS / "python"), "-P", "-m", "samcli"]
    return (
        _run(str(TOOLS / "hadolint"), "Dockerfile")
        or _run(*sam, "validate", "--lint")
        or _run(str(TOOLS / "cfn-lint"), *map(str, nested_templates()))
        or _run(*sam, "build", *arguments)
    )


def bills() -> int:
    """Write the bills of materials, unchecked: CycloneDX's own check always passes, and is slow."""
    BILLS.mkdir(parents=True, exist_ok=True)
    for package in ("functions", "console"):
        tool = [str(TOOLS / "python"), "-P", "-W", "ignore", "-m", "cyclonedx_py", "requirements"]
        words = ["--pyproject", "pyproject.toml", "--output-reproducible", "--no-validate"]
        out = ["--of", "JSON", "--output-file", str(BILLS / f"{package}.cdx.json")]
        if status := _run(*tool, str(Path(package, "requirements.txt")), *words, *out):
            return status
    return 0


def _run(*command: str) -> int:
    return subprocess.run(
        command, cwd=PROJECT_ROOT, env=os.environ | ENVIRONMENT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
