"""The command line: `gecasmo COMMAND`. One file a command."""

from __future__ import annotations

import typer

from gecasmo.cli.demo import demo
from gecasmo.cli.models import describe, models
from gecasmo.cli.paper import paper

app = typer.Typer(
    help="Click models: write them as short programs, fit them exactly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(models)
app.command()(describe)
app.command()(paper)


def main() -> None:
    """Run the command line; errors of ours are shown without a traceback."""
    import sys

    from gecasmo.errors import GecasmoError

    try:
        app()
    except GecasmoError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(1)
