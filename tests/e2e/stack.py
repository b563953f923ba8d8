"""The stack: deployed, updated and deleted with SAM, as docs/how-to/deploy.md says."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).parents[2]
SAM = (str(ROOT / ".venv-build/bin/python"), "-P", "-m", "samcli")
NAME = "headrace-e2e"


@dataclass(frozen=True)
class Stack:
    """A stack in the region and account that the environment names; *log* has what SAM says."""

    log: Path
    name: str = NAME

    def deploy(self, **parameters: str) -> None:
        """Create it, or bring it up to date; it keeps parameters that are not named."""
        self._deploy(parameters)

    def change(self, **parameters: str) -> None:
        """Deploy what is deployed with other parameters: no package is made or sent again."""
        client = boto3.client("cloudformation")
        template: object = client.get_template(StackName=self.name)["TemplateBody"]
        deployed = self.log.with_name("deployed.yaml")
        deployed.write_text(template if isinstance(template, str) else json.dumps(template))
        settings = ROOT / "samconfig.toml"  # else sought beside the template
        self._deploy(parameters, "--template-file", str(deployed), "--config-file", str(settings))

    def _deploy(self, parameters: dict[str, str], *source: str) -> None:
        given = [f"{name}={value}" for name, value in parameters.items()]
        overrides = ["--parameter-overrides", *given] if given else []
        self._sam(
            "deploy",
            "--stack-name",
            self.name,
            "--no-confirm-changeset",
            "--no-fail-on-empty-changeset",
            *source,
            *overrides,
        )

    def delete(self) -> None:
        """Delete it, all but what it keeps."""
        self._sam("delete", "--stack-name", self.name, "--no-prompts")

    def outputs(self) -> dict[str, str]:
        """Return its outputs by name."""
        (stack,) = boto3.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}

    def resources(self) -> dict[str, dict[str, Any]]:
        """CloudFormation's answer about its resources, by their names in the template."""
        pages = boto3.client("cloudformation").get_paginator("list_stack_resources")
        return {
            each["LogicalResourceId"]: each
            for page in pages.paginate(StackName=self.name)
            for each in page["StackResourceSummaries"]
        }

    def secret(self, arn: str) -> str:
        """Return a secret's text."""
        answer = boto3.client("secretsmanager").get_secret_value(SecretId=arn)
        text: str = answer["SecretString"]
        return text

    def _sam(self, *arguments: str) -> None:
        """Run SAM.  Raises AssertionError with the end of what it said when it fails."""
        path = f"{ROOT / '.venv-build/bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": "", "SAM_CLI_TELEMETRY": "0"}
        with self.log.open("a+") as log:
            start = log.tell()
            done = subprocess.run(
                [*SAM, *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=300,
            )
            log.seek(start)
            message = log.read()
        assert done.returncode == 0, message[-4000:]
