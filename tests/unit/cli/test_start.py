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


def test_with_them_it_is_the_command() -> None:
    ran = without("nothing")

    assert ran.returncode == 0
    assert ran.stdout.startswith("headrace ")


def test_an_interruption_while_it_starts_is_no_traceback() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'headrace.cli.main': raise KeyboardInterrupt\n"
        "from headrace.cli.start import main\n"
        "sys.meta_path.insert(0, Interrupted()); main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


def test_the_package_is_the_command_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ran.stdout.startswith("headrace ")
