"""Which folders the wheel is made of: everything else about it is in pyproject.toml.

Packages are found, not listed, and `pyproject.toml` can only find them in one place: the console is
a folder of its own, as Chalice wants it, and `headrace.console` in the wheel.
"""

from setuptools import find_packages, setup

CONSOLE = "headrace.console"

setup(
    packages=[
        *find_packages("functions", include=["headrace*", "pyspark_headrace*"]),
        CONSOLE,
        *(f"{CONSOLE}.{name}" for name in find_packages("console")),
    ],
    package_dir={"": "functions", CONSOLE: "console"},
)
