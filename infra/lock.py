"""Pin every package by hash: write the requirements files from pyproject.toml.

``make lock ARGS=--upgrade`` takes newer versions, ``ARGS='--upgrade-package rich'`` one of them.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from infra import PROJECT_ROOT

COMPILE: Final = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--universal"),
    *("--no-emit-index-url", "--no-header", "--no-strip-extras", "--python-version", "3.11"),
)
OLDER_SPARKS: Final = ("4.0", "4.1")
# What only the command line of Chalice needs, and what only a lake in a folder needs.
CHALICE_CLI: Final = (
    *("ansicon", "blessed", "click", "editor", "inquirer", "jinxed", "packaging", "pip", "pyyaml"),
    *("readchar", "runs", "setuptools", "wcwidth", "wheel", "xmod"),
)
FOLDER_LAKE: Final = ("arro3-core", "deltalake", "deprecated", "wrapt")


def without(packages: Sequence[str]) -> str:
    """Return the words that leave *packages* out."""
    return " ".join(f"--no-emit-package {package}" for package in packages)


LOCKS: Final = {
    "functions/requirements.txt": "--group lambda",
    "console/requirements.txt": f"--group console {without(CHALICE_CLI)}",
    "requirements/server.txt": "pyproject.toml --extra server",
    "requirements/dev.txt": "pyproject.toml --extra server --group dev",
    "requirements/uv.txt": "--group uv",
    "requirements/build.txt": "--group build",
    "requirements/tools.txt": "--group tools",
    "requirements/e2e.txt": "--group e2e",
    "requirements/spark.txt": "pyproject.toml --extra server --extra iceberg --group spark",
    **{
        f"requirements/spark-{version}.txt": "pyproject.toml --extra server --extra spark"
        f" --group spark-{version}"
        for version in OLDER_SPARKS
    },
    "infra/spark/requirements.txt": "pyproject.toml --extra spark --extra iceberg"
    " --constraint requirements/spark.txt " + without(("pyspark", "py4j", *FOLDER_LAKE)),
}


def main(arguments: list[str]) -> int:
    """Write each file, with *arguments* for uv."""
    for file, words in LOCKS.items():
        command = [*COMPILE, *words.split(), "--output-file", file, *arguments]
        done = subprocess.run(command, cwd=PROJECT_ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
