"""The command line: `gecasmo COMMAND`. Commands that belong together share a file."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from gecasmo.cli.answers import evaluate, predict, simulate
from gecasmo.cli.check import check
from gecasmo.cli.compare import compare
from gecasmo.cli.explain import explain
from gecasmo.cli.fit import fit, update
from gecasmo.cli.guard import BAD_INPUT, EPILOG, Guarded
from gecasmo.cli.ingest import ingest
from gecasmo.cli.judgments import judgments, propensities
from gecasmo.cli.output import write_remark
from gecasmo.cli.paper import paper
from gecasmo.cli.zoo import demo, describe, models

app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EPILOG,
)

_PANELS = {
    "Look around": (demo, models, describe),
    "From a log to judgments": (check, compare, fit, update, judgments, propensities),
    "Logs larger than memory": (ingest,),
    "Look into a fit": (evaluate, explain, predict, simulate),
    "Research": (paper,),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gecasmo import __version__

        print(f"gecasmo {__version__}")
        raise typer.Exit


@app.callback()
def every_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, and Python's own warnings.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Click models: from a log of what was shown and clicked to judgments of what is relevant.

    [bold]Three commands[/bold]

    [cyan]gecasmo check clicks.parquet[/cyan]

    [cyan]gecasmo fit DBN clicks.parquet -o dbn.fit[/cyan]

    [cyan]gecasmo judgments dbn.fit -o judgments.csv[/cyan]
    """


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="gecasmo")
    except Exception:  # only with --debug; Python itself would print whatever is in the message
        write_remark(traceback.format_exc().rstrip("\n"))
        sys.exit(BAD_INPUT)
