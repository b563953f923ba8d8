"""`headrace api`: one request to the API, for what no other command does."""

from urllib.parse import parse_qsl

import click
from msgspec import structs

from headrace.cli import params
from headrace.cli.commands import CliCommand
from headrace.cli.output import pretty, write_json
from headrace.cli.session import CliSession
from headrace.client.calls import RawAnswer, service


def _body_of(answer: RawAnswer) -> bytes:
    return answer.body


@click.command(
    "api",
    cls=CliCommand,
    example="headrace api GET '/v1/queues/mail/tasks?state=DEAD'\n"
    "headrace api POST /v1/queues/mail/dequeue '{\"wait_seconds\": 20}'",
)
@click.argument("method", metavar="METHOD")
@click.argument("path", metavar="PATH")
@click.argument("body", metavar="[BODY]", required=False)
@click.pass_obj
def api_command(session: CliSession, method: str, path: str, body: str | None) -> None:
    """Send one request to the API, and print the JSON of its answer.

    BODY is JSON; - is stdin.  An answer that refuses the request is an error with an exit code, as
    of any other command.
    """
    path, _, query = path.partition("?")
    sent = None if body is None else params.json_of("BODY", body)
    call = service.call(method, path, params=dict(parse_qsl(query)) or None, body=sent)
    answer = session.client.send(structs.replace(call, read=_body_of))
    if answer:
        write_json(pretty(answer))
