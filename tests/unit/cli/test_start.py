"""`headrace` where only the SDK is installed."""

import subprocess
import sys


def without(name: str) -> subprocess.CompletedProcess[str]:
    """Run `headrace --version` in a Python that has no package *name*."""
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "from headrace.cli.start import main; sys.argv[1:] = ['--version']; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_command_without_its_libraries_says_what_to_install() -> None:
    ran = without("rich")

    assert ran.returncode == 1
    assert ran.stderr == (
        "error: the command needs Python packages that are not here (rich): "
        "pip install 'headrace[cli]'\n"
    )


def test_the_package_is_the_command_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ran.stdout.startswith("headrace ")
