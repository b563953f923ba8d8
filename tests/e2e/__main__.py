"""Deploy template.yaml to an emulator of AWS, and run the tests of this folder against it.

`python -m tests.e2e` deploys what `sam build` has built.  Arguments go to pytest, which runs all
files unless they name some.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import boto3

from tests.e2e.stack import ROOT, Stack
from tests.engine import dynamodb_local
from tests.processes import free_port
from tests.waiting import until

HOST: Final = "q.example.org"  # a domain in front of the deployed API
PARAMETERS: Final = {
    "Stage": "e2e",
    "SettingsTtlSeconds": "0",
    "LongPollSeconds": "20",
    "RawLake": "true",
    # So that the firewall is deployed too; no test asks so often.
    "RequestsPerAddress": "1000000",
    "RequestsPerKey": "1000000",
    "PushAllowedHosts": "127.0.0.1",  # where tests receive what is pushed
}
# In this order: the last ones change the deployment, and then remove it.
SUITES: Final = (
    "tests/e2e/test_smoke.py",
    "tests/e2e/test_operations.py",
    "tests/e2e/test_payloads.py",
    "tests/e2e/test_push.py",
    "tests/e2e/test_console.py",
    "tests/e2e/test_deployed.py",
    "tests/e2e/test_update.py",
    "tests/e2e/test_delete.py",
)
_START_SECONDS: Final = 180.0
_begin: Final = time.monotonic()


def main() -> int:
    """Return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="headrace-e2e-") as folder:
        port = free_port()
        # Its account has no credentials that could be right; these are as good as any.
        os.environ.update(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            HEADRACE_E2E_FOLDER=folder,
        )
        os.environ.pop("AWS_PROFILE", None)
        os.environ.pop("AWS_SESSION_TOKEN", None)
        say("starting the emulator")
        with dynamodb_local() as engine, emulator(port, Path(folder), engine.url):
            say("deploying the stack")
            stack = Stack(Path(folder, "sam.log"))
            stack.deploy(**PARAMETERS)
            os.environ.update(addresses(stack))
            say("running the tests")
            command = [sys.executable, "-m", "pytest"]
            given = sys.argv[1:]
            suites = () if any(each.startswith("tests/") for each in given) else SUITES
            code = subprocess.run([*command, *suites, *given], cwd=ROOT, check=False).returncode
            say("done" if code == 0 else f"pytest ended with {code}")
            return code


@contextlib.contextmanager
def emulator(port: int, folder: Path, dynamodb_url: str) -> Iterator[None]:
    """Run the emulator, its data and its functions' files in *folder*.

    Its tables are on the DynamoDB Local at *dynamodb_url*.
    """
    environment = {
        **os.environ,
        "AUTH": "true",  # the emulator enforces the roles of functions
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "HEADRACE_E2E_DYNAMODB": dynamodb_url,
        "IOT_MTLS_ENABLED": "0",
        "PYTHONPATH": "",
        "TMPDIR": str(folder),
    }
    environment.pop("AWS_ENDPOINT_URL")  # it tells functions where it is
    log = folder / "emulator.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(ROOT / ".venv-e2e/bin/python"), "-P", str(ROOT / "tests/e2e/emulator.py")],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until_it_answers(process, f"http://127.0.0.1:{port}/_ministack/health", log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait for the emulator; exit with the end of its log if it does not start."""

    def is_answering() -> bool:
        if process.poll() is not None:
            sys.exit(f"The emulator does not start:\n{log.read_text()[-4000:]}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310
            return True
        return False

    until(is_answering, _START_SECONDS, what="an answer of the emulator", every=0.2)


def addresses(stack: Stack) -> dict[str, str]:
    """Give the deployed API another domain, and return the addresses for the tests."""
    outputs = stack.outputs()
    api = urlsplit(outputs["ApiUrl"]).netloc.partition(".")[0]
    stage = PARAMETERS["Stage"]
    gateway = boto3.client("apigateway")
    gateway.create_domain_name(
        domainName=HOST,
        endpointConfiguration={"types": ["REGIONAL"]},
        regionalCertificateArn="arn:aws:acm:us-east-1:000000000000:certificate/e2e",
    )
    gateway.create_base_path_mapping(domainName=HOST, restApiId=api, stage=stage)
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return {
        "HEADRACE_URL": endpoint,
        "HEADRACE_HOST": HOST,
        "HEADRACE_STAGE_URL": f"{endpoint}/restapis/{api}/{stage}/_user_request_",
        "HEADRACE_KEY": stack.secret(outputs["AdminKeyArn"]),
        "HEADRACE_TASKS_TABLE": outputs["TasksTableName"],
        "HEADRACE_CONTROL_TABLE": outputs["ControlTableName"],
    }


def say(what: str) -> None:
    """Tell how it goes."""
    print(f"{time.monotonic() - _begin:5.0f} s  {what}", flush=True)  # noqa: T201  to a person


if __name__ == "__main__":
    sys.exit(main())
