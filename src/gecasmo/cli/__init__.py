"""The command line: `gecasmo COMMAND`. Commands that belong together share a file."""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer

from gecasmo.cli.answers import evaluate, explain, predict, simulate
from gecasmo.cli.compare import compare
from gecasmo.cli.config import current, find_config
from gecasmo.cli.decide import best, whatif
from gecasmo.cli.fit import fit, update
from gecasmo.cli.flags import LOG_FLAGS
from gecasmo.cli.guard import EPILOG, Guarded, run
from gecasmo.cli.judgments import judgments, propensities
from gecasmo.cli.logs import check, ingest
from gecasmo.cli.show import report, show
from gecasmo.cli.zoo import demo, describe, gap, models, paper

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
    "Decide": (whatif, best),
    "Logs larger than memory": (ingest,),
    "Look into a fit": (evaluate, explain, predict, simulate, show, report),
    "Research": (paper, gap),
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
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A file with flags for all commands; by default gecasmo.toml in this folder, if "
            "there is one. 'none' ignores it.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and Python warnings.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Click models: from a log of what was shown and clicked to judgments of what is relevant.

    [bold]Three commands[/bold]

    [cyan]gecasmo check clicks.parquet[/cyan]

    [cyan]gecasmo fit DBN clicks.parquet -o dbn.fit[/cyan]

    [cyan]gecasmo judgments dbn.fit -o judgments.csv[/cyan]
    """
    commands: dict[str, Any] = context.command.commands  # type: ignore[attr-defined]
    found = find_config(config, commands, LOG_FLAGS)
    current.set(found)
    context.default_map = None if found is None else found.defaults


def main() -> None:
    """Run the command line."""
    # Whatever was imported stays until the end: looking through it for garbage, again and again
    # and once more at the exit, takes a third of what a small fit takes.
    gc.freeze()
    try:
        code = run(app)
    finally:
        gc.freeze()
    sys.exit(code)
