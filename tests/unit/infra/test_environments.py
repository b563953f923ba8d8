"""Environments, lock files and the build agree with the Makefile, and are made only when needed."""

import os
import re
from pathlib import Path

import pytest

from infra import PROJECT_ROOT, build, environments, lock, pythons


def test_every_environment_of_the_makefile_has_a_lock_file_that_make_lock_writes() -> None:
    files = [PROJECT_ROOT / "Makefile", PROJECT_ROOT / ".ci" / "stages.py"]
    text = "".join(file.read_text() for file in files)
    named = {
        name for name in re.findall(r"(\.venv[\w.-]*)/(?:\.ready|bin)", text) if "%" not in name
    }
    named |= {f".venv-{version}" for version in pythons.PYTHONS}
    named |= {f".venv-spark-{version}" for version in lock.OLDER_SPARKS}
    named -= {".venv-spark-4."}

    assert len(named) > 5
    for name in named:
        file = f"requirements/{environments.lock_of(name)}.txt"
        assert file in lock.LOCKS, name
        assert (PROJECT_ROOT / file).exists(), name


def test_no_lock_file_names_the_host_of_a_registry() -> None:
    for file in lock.LOCKS:
        assert not re.search(r"https?://", (PROJECT_ROOT / file).read_text()), file


def test_an_environment_is_installed_again_only_after_its_lock_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "_run", lambda *_, **__: None)
    monkeypatch.setattr(
        environments, "_install", lambda python, *_, **__: installed.append(python.parts[-3])
    )
    (tmp_path / "requirements").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    dev, tools = (tmp_path / "requirements" / f"{name}.txt" for name in ("dev", "tools"))
    dev.write_text("rich==14.0")
    tools.write_text("rq==3.0")

    for name in (".venv", ".venv-tools"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()

    environments.set_up(".venv-tools")
    environments.set_up(".venv-tools")
    tools.write_text("rq==3.1")
    environments.set_up(".venv-tools")

    assert installed == [".venv", ".venv", ".venv-tools", ".venv-tools"]


def test_a_build_is_current_until_a_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / ".aws-sam" / "template.yaml"
    monkeypatch.setattr(build, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(build, "BUILT", built)
    for file in (tmp_path / "template.yaml", tmp_path / "functions" / "api.py"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, (1, 1))
    assert not build.is_current()
    built.parent.mkdir()
    built.touch()
    os.utime(built, (2, 2))
    assert build.is_current()

    os.utime(tmp_path / "functions" / "api.py", (3, 3))

    assert not build.is_current()
