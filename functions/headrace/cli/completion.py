"""`headrace completion`: what makes a shell complete commands, options and names of queues."""

import click
from click.shell_completion import get_completion_class

from headrace.cli.commands import CliCommand
from headrace.cli.session import Failed

VARIABLE = "_HEADRACE_COMPLETE"


@click.command(
    "completion",
    cls=CliCommand,
    example='eval "$(headrace completion bash)"                 # in ~/.bashrc; zsh likewise\n'
    "headrace completion fish | source                    # in ~/.config/fish/config.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(f"click has no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "headrace", VARIABLE)
    # Not source(): it starts a bash to see how old it is, and this may run far from any.
    click.echo(script.source_template % script.source_vars())
