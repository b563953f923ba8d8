"""Single enqueues of many threads, gathered into batches."""

import os
import subprocess
import sys
from pathlib import Path

from headrace import Client
from tests.unit.client.network import Network, Reply, enqueued


def client_on(reply: Reply) -> tuple[Client, Network]:
    wire = Network([reply])
    return Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep), wire


def test_enqueues_go_out_together_and_each_hears_of_its_own() -> None:
    client, wire = client_on(enqueued)
    with client.batcher(linger_seconds=60) as batcher:
        futures = [batcher.enqueue("mail", n, id=f"t{n}") for n in range(60)]
        batcher.enqueue("other", 1)
    assert [future.result().id for future in futures] == [f"t{n}" for n in range(60)]
    sizes = sorted(len(wire.body(place)["tasks"]) for place in range(len(wire.requests)))
    assert sum(sizes) == 61
    assert len(sizes) <= 6


PROGRAM = """
import os, sys
import httpx2 as httpx
from headrace import Client

def noted(request):
    with open(sys.argv[1], "ab") as file:
        file.write(b"%d " % os.getpid() + request.read() + b"\\n")
    return httpx.Response(200, content=b'{"results": []}')

client = Client("http://queue.test", "hr_key", transport=httpx.MockTransport(noted))
batcher = client.batcher(linger_seconds=60)
"""


def run(program: str, path: Path) -> list[str]:
    functions = Path(__file__).parents[3] / "functions"
    env = {**os.environ, "PYTHONPATH": str(functions)}
    subprocess.run([sys.executable, "-c", PROGRAM + program, str(path)], env=env, check=True)
    return path.read_text().splitlines()


def test_what_waits_when_the_program_ends_is_sent(tmp_path: Path) -> None:
    (line,) = run("batcher.enqueue('mail', 'last words')", tmp_path / "sent")
    assert "last words" in line
