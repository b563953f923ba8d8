"""What the guides say does not exist is in neither the API, the SDK nor the command."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

import headrace
from headrace import App, Client, Context
from headrace.cli.commands import CliGroup
from headrace.cli.main import main
from headrace.client.app.handles import EnqueuedTask
from headrace.http.app import RESOLVER
from headrace.http.openapi import document
from tests.documented_lines import FENCE, PAGES

CLAIM: Final = re.compile(
    r"[Tt]here (?:is|are) no (?P<none>[\w' -]+)"
    r"|(?P<absent>[\w' -]+?) (?:does|do) not exist\b"
    r"|(?P<missing>[\w' -]+?) (?:is|are) not (?:yet )?(?:supported|available|offered|built)\b"
    r"|[Hh]eadrace has no (?P<has>[\w' -]+)"
)
"""How a sentence says that something is absent."""
CONDITION: Final = re.compile(r"\b(if|such|that|where|whose)\b", re.IGNORECASE)
LIST: Final = re.compile(
    r"^## What we do not have[^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
LISTED: Final = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)
PRESENT: Final = [page for page in PAGES if page.exists()]

SYNONYMS: Final = {
    "chord": "workflow",
    "dependency": "workflow",
    "event": "on_end",
    "iterable": "last_progress",
    "message": "task",
    "push": "target",
    "revoke": "cancel",
    "uniqueness": "unique_for_seconds",
    "waiting": "wait_seconds",
}
"""Words of other queues for what has another name here."""

TRUE: Final = {
    "Any number of priorities, or a strict one": "the setting priority has three levels that age",
    "Rate limits by key": "the limits of a group are about tasks in flight",
    "SDKs in other languages": "the only SDK is in Python",
    "separate dead-letter queue": "dead tasks stay in their queue",
    "result backend to set up or clean": "results are kept with the task",
    "result to wait for": "of a task that is not kept",
    "signature": "for a Lambda function; a URL gets one",
    "timers and no stream": "under sam local",
    "wildcard actions": "in an IAM policy",
    "groups": "in a queue without the setting",
}
"""Claims whose words name other things that are there, and why each is true."""


def ours(page: Path) -> str:
    """Return the prose of *page*, without code and without what it says of another queue."""
    text = FENCE.sub("", page.read_text())
    if page.parent.name == "coming-from":
        begin, _, _ = text.partition("## 1. ")
        text = begin + text[text.index("## What else differs") :]
    return text.replace("`", "")


def claims(text: str) -> Iterator[str]:
    """Yield each thing that *text* says does not exist."""
    for found in CLAIM.finditer(text):
        thing = next(one for one in found.groups() if one).strip()
        if not CONDITION.search(thing):
            yield thing
    for listed in LIST.findall(text):
        yield from (thing.strip(" .") for thing in LISTED.findall(listed))


def stems(text: str) -> set[str]:
    """Return the words of *text*, of names in any style too, without their endings."""
    words = re.findall(r"[a-z]{4,}", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return {re.sub(r"(ies|y|ing|s)$", "", word) for word in words}


def names_of_the_api() -> Iterator[str]:
    described = document(RESOLVER)
    for path, operations in described["paths"].items():
        yield path
        for operation in operations.values():
            yield operation["operationId"]
            yield from (each["name"] for each in operation.get("parameters", ()))
    for name, schema in described["components"]["schemas"].items():
        yield name
        yield from schema.get("properties", ())
        yield from map(str, schema.get("enum", ()))


def names_of_the_sdk() -> Iterator[str]:
    yield from headrace.__all__
    for kind in (App, Client, Context, EnqueuedTask):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_"):
                yield name
                if callable(member):
                    yield from inspect.signature(member).parameters


def names_of_the_command(command: click.Command = main) -> Iterator[str]:
    yield command.name or ""
    yield from (name for one in command.params for name in one.opts)
    if isinstance(command, CliGroup):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from names_of_the_command(inner)


@pytest.fixture(scope="module")
def there() -> set[str]:
    """The words in the names of what is there."""
    return {
        stem
        for name in (*names_of_the_api(), *names_of_the_sdk(), *names_of_the_command())
        for stem in stems(name)
    }


def named(claim: str, there: set[str]) -> set[str]:
    """Return the names of what is there that *claim* speaks of."""
    words = stems(claim)
    for word, name in SYNONYMS.items():
        words |= stems(name) if stems(word) <= words else set()
    return words & there


def test_what_a_page_says_does_not_exist_is_not_there(there: set[str]) -> None:
    false = {
        (page.name, claim): names
        for page in PRESENT
        for claim in claims(ours(page))
        if claim not in TRUE and (names := named(claim, there))
    }

    assert not false, "mend the sentence, or say in TRUE why it is true"


@pytest.mark.parametrize(
    "text",
    [
        "## What we do not have yet\n- **Waiting for a result** in one call: ask again.\n",
        "## What we do not have yet\n- **Push**: the service calls nobody's URL.\n",
        "- There is no push here: run a worker where you run your web service.",
        "Uploads of files are not yet supported.",
    ],
)
def test_a_claim_about_what_is_there_is_found(text: str, there: set[str]) -> None:
    (claim,) = claims(text)

    assert named(claim, there)


def test_every_reason_is_for_a_claim_that_is_made() -> None:
    made = {claim for page in PRESENT for claim in claims(ours(page))}

    assert set(TRUE) <= made
