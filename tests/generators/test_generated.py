"""Clients that four generators make of the OpenAPI document: complete, and they compile.

`make test-generators` sets the generators up, each pinned, and runs this.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.http.app import TABLE
from headrace.http.openapi import document

HERE = Path(__file__).parent
PYTHON_TOOLS = HERE.parents[1] / ".venv-tools" / "bin"
NODE_TOOLS = HERE / "node_modules" / ".bin"
DOCUMENT = document(TABLE.routes)
OPERATIONS = sorted(
    operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()
)
TSCONFIG = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "lib": ["es2022", "dom", "dom.iterable"],
    },
    "include": ["client"],
}
USE_OF_HEY_API = """
import { dequeue, enqueue, moveTasks, report } from "./sdk.gen";

export async function story(): Promise<string | undefined> {
  const path = { queue: "mail" };
  await enqueue({ path, body: { tasks: [{ payload: { to: "ada" } }] } });
  const taken = await dequeue({ path, body: { batch_size: 1 } });
  for (const task of taken.data?.tasks ?? []) {
    const reports = [{ task_id: task.id, lease_id: task.lease.id, status: "SUCCEEDED" as const }];
    await report({ path, body: { reports } });
  }
  const moved = await moveTasks({ path, body: { to_queue: "fax", filter: { state: "DEAD" } } });
  return moved.data?.results?.[0]?.outcome;
}
"""
USE_OF_OPENAPI_TYPESCRIPT = """
import type { components, operations } from "./schema";

export const moved: components["schemas"]["MoveBody"] = { to_queue: "fax", ids: ["a"], dry_run: false };
export type Shown = operations["get_task"]["responses"][200]["content"]["application/json"];
export const errors = (task: Shown): string[] => task.errors.map((error) => error.message);
"""  # noqa: E501 (a line of TypeScript)

USE_OF_OPENAPI_GENERATOR = """
import importlib, pkgutil
from openapi_client import api, models

for package in (api, models):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")

body = models.EnqueueBody(tasks=[models.TaskEntry(payload={"to": "ada"})])
assert body.to_json() == '{"tasks": [{"payload": {"to": "ada"}}]}', body.to_json()

at = "2026-11-21T08:00:00.000000Z"
repeated = {"id": "key_1", "name": "ada", "role": "worker", "queues": ["*"], "prefix": "hr_1"}
repeated |= {"created_at": at, "expires_at": None, "secret": None}
assert models.NewKey.from_dict(repeated).secret is None
assert models.SpawnEntry(queue="mail", payload=1).queue == "mail"
assert not {"id", "payload_ref"} & models.CallbackEntry.model_fields.keys()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the document in it."""
    made = tmp_path_factory.mktemp("generated")
    (made / "openapi.json").write_text(json.dumps(DOCUMENT))
    return made


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a tool says, which must not fail."""
    path = os.pathsep.join([str(PYTHON_TOOLS), os.environ["PATH"]])  # it calls ruff
    env = {**os.environ, "PATH": path, "NO_COLOR": "1"}
    ended = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_openapi_python_client_leaves_nothing_out(folder: Path) -> None:
    tool = PYTHON_TOOLS / "openapi-python-client"
    shown = run(
        [tool, "generate", "--path", "openapi.json", "--output-path", "made", "--meta", "none"],
        folder,
    )

    assert "warning" not in shown.lower(), shown
    made = {file.stem for file in (folder / "made" / "api").glob("*/*.py")} - {"__init__"}
    assert sorted(made) == OPERATIONS


def test_what_openapi_python_client_makes_has_the_right_types(folder: Path) -> None:
    ended = subprocess.run(
        [PYTHON_TOOLS / "mypy", "made"], cwd=folder, capture_output=True, text=True, check=False
    )

    of_its_own = "made/client.py"  # the same for every document
    wrong = [line for line in ended.stdout.splitlines() if ": error:" in line]
    assert [line for line in wrong if not line.startswith(of_its_own)] == []


def test_what_openapi_generator_makes_is_complete_and_of_use(folder: Path) -> None:
    command = ["generate", "-i", "openapi.json", "-g", "python", "-o", "python"]
    run([PYTHON_TOOLS / "openapi-generator-cli", *command], folder)

    made = folder / "python"
    calls = [
        name
        for file in (made / "openapi_client" / "api").glob("*_api.py")
        for name in re.findall(r"def (\w+)_with_http_info", file.read_text())
    ]
    assert sorted(calls) == OPERATIONS
    run([sys.executable, "-c", USE_OF_OPENAPI_GENERATOR], made)


def compiled(folder: Path, use: str) -> None:
    (folder / "client" / "use.ts").write_text(use)
    (folder / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    run([NODE_TOOLS / "tsc", "-p", "tsconfig.json"], folder)


def test_what_openapi_typescript_makes_compiles_and_is_of_use(folder: Path) -> None:
    project = folder / "types"
    (project / "client").mkdir(parents=True)
    run(
        [NODE_TOOLS / "openapi-typescript", "../openapi.json", "-o", "client/schema.d.ts"],
        project,
    )

    compiled(project, USE_OF_OPENAPI_TYPESCRIPT)


def test_what_hey_api_makes_compiles_and_is_of_use(folder: Path) -> None:
    project = folder / "sdk"
    project.mkdir()
    run([NODE_TOOLS / "openapi-ts", "-i", "../openapi.json", "-o", "client"], project)

    made = re.findall(
        r"^export const (\w+)", (project / "client" / "sdk.gen.ts").read_text(), re.MULTILINE
    )
    assert sorted(made) == sorted(map(camel, OPERATIONS))
    compiled(project, USE_OF_HEY_API)


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
