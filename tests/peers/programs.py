"""What a page for people who come from BullMQ or Sidekiq shows as theirs, as one program.

Its blocks stand in it in the order of the page.  What it should print stands on the page too:
behind an arrow in a comment, or below the line that starts a worker.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```(js|ruby|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTS: Final = re.compile(r"(?://|#) → (.*)")
_FILE: Final = "# shop.rb\n"
_NOT_FREE: Final = "# Enterprise"
_WORK: Final = "$ sidekiq "
_SECONDS: Final = 120

_LOG: Final = """
Sidekiq.configure_server { |config| config.logger = Sidekiq::Logger.new("log") }
$stdout.sync = true
"""
_TYPED: Final = """
require "./shop"

# Run a worker until it has begun all that waits, then stop it: what runs has its time to end.
def work(command)
  waiting = Sidekiq::Queue.all.sum { |queue| command.include?(queue.name) ? queue.size : 0 }
  File.write("log", "")
  worker = spawn("sidekiq", *command)
  until File.read("log").scan("INFO: start\\n").size == waiting
    abort("the worker ended:\\n" + File.read("log")) if Process.wait(worker, Process::WNOHANG)
    sleep 0.02
  end
  Process.kill("TERM", worker)
  Process.wait(worker)
end
"""


def bullmq(page: str, folder: Path, broker: str, modules: Path) -> list[str]:
    """Write the page's program to *folder*; return the command that runs it."""
    port = broker.partition("127.0.0.1:")[2].partition("/")[0]
    code = "".join(code for _, code in _blocks(page))
    local = '{ host: "localhost" }'
    assert local in code
    (folder / "shop.mjs").write_text(code.replace(local, f'{{ host: "localhost", port: {port} }}'))
    (folder / "node_modules").symlink_to(modules)
    return ["node", "shop.mjs"]


def sidekiq(page: str, folder: Path) -> list[str]:
    """Write the page's jobs, and what is typed, to *folder*; return the command that runs it."""
    jobs: list[str] = []
    typed = [_TYPED]
    for language, code in _blocks(page):
        if language == "console":
            arguments = code.removeprefix(_WORK).partition("\n")[0]
            typed.append(f"work(%w[{arguments}])\n")
        else:
            (jobs if code.startswith(_FILE) else typed).append(code)
    (folder / "shop.rb").write_text("".join(jobs) + _LOG)
    (folder / "typed.rb").write_text("".join(typed))
    return ["ruby", "typed.rb"]


def expected(page: str) -> list[str]:
    """Return the lines that the page says are printed."""
    return [
        line
        for language, code in _blocks(page)
        for line in (code.splitlines()[1:] if language == "console" else _PRINTS.findall(code))
    ]


def printed(command: list[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """Run *command* in *folder*; return the lines that it prints, and why it failed if it did."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | dict(env),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return (done.stdout + (done.stderr if done.returncode else "")).splitlines()


def _blocks(page: str) -> Iterator[tuple[str, str]]:
    """Those of their side that can be run, each with its language."""
    for language, code in _BLOCK.findall(page):
        if _NOT_FREE not in code:
            yield language, code
