"""Which folders the wheel is made of: everything else about it is in pyproject.toml.

Packages are found, not listed, and `pyproject.toml` can only find them in one place: the console is
a folder of its own, as Chalice wants it, and `headrace.console` in the wheel.

An editable install leaves the console in its folder, where `headrace run` finds it.  Then it is one
folder on the path, which type checkers follow; of two they would find nothing.
"""

import sys

from setuptools import find_packages, setup

CONSOLE = "headrace.console"
EDITABLE = "editable_wheel" in sys.argv

packages = find_packages("functions", include=["headrace*", "pyspark_headrace*"])
console = [CONSOLE, *(f"{CONSOLE}.{name}" for name in find_packages("console"))]

setup(
    packages=packages if EDITABLE else [*packages, *console],
    package_dir={"": "functions"} if EDITABLE else {"": "functions", CONSOLE: "console"},
)
