"""Pages for the browser, each one file: `gecasmo show` writes a model that runs there, and `gecasmo
report` what a model found in a log, for people who do not run commands.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gecasmo.cli.flags import FitArgument, LogArgument, LogFlags, bundled, output_flag
from gecasmo.cli.lookup import complete_model
from gecasmo.cli.output import Output, place_name
from gecasmo.errors import GecasmoError, extra
from gecasmo.files import is_stream
from gecasmo.report import counted, wrapped


@bundled
def show(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FIT|MODEL",
            help="A file that `gecasmo fit` has written; or a name that `gecasmo models` lists, or "
            "path/to/file.py:ClassName, to be shown with numbers that are made up.",
            autocompletion=complete_model,
        ),
    ],
    target: Annotated[
        str, output_flag("The page to write, such as model.html. - is standard output.")
    ],
    output: Output,
    queries: Annotated[
        int, typer.Option(min=1, help="At most so many queries: those with the most evidence.")
    ] = 200,
    docs: Annotated[int, typer.Option(min=1, help="At most so many documents of a query.")] = 12,
    size: Annotated[int, typer.Option(min=1, help="At most so many results on a page.")] = 10,
) -> None:
    """Write a page for the browser in which a model can be tried: drag results, toggle clicks.

    The page runs the model itself. It is one file, which fetches nothing and sends nothing.

    [bold]Examples[/bold]

    [cyan]gecasmo show dbn.fit -o model.html[/cyan]

    [cyan]gecasmo show DBN -o dbn.html[/cyan]
    """
    from gecasmo.browser import model_data, page_of, write_page
    from gecasmo.cli.lookup import find_model, load_fit

    place = page_place(output, target, model, flag="--output")
    is_file = Path(model).expanduser().exists() or Path(model).suffix == ".fit"
    shown = load_fit(model) if is_file else find_model(model)
    with output.working(f"Writing {shown.name}"):
        data = model_data(shown, queries=queries, docs=docs, size=size)
        write_page(page_of(data), place)
    n_queries, left_out = len(data["queries"]), data["left_out"]
    told = f"{shown.name} with {n_queries:,} {'query' if n_queries == 1 else 'queries'}"
    if left_out:
        told += f" ({left_out:,} more are left out: --queries)"
    facts = {"model": shown.name, "queries": n_queries, "left_out_queries": left_out}
    output.summarise(place, facts, f"{told}, written to {place_name(place)}.")


@bundled
def report(
    fit: FitArgument,
    log: LogArgument,
    target: Annotated[
        str, output_flag("The page to write, such as report.html. - is standard output.")
    ],
    reading: LogFlags,
    output: Output,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="The log has other pages than the fit. Without this flag the model is fitted "
            "again, to four fifths of the log, to see how well it predicts the rest.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of splits and simulations.")] = 0,
) -> None:
    """Write a report that can be mailed: the log, what users do, how good the model is, judgments.

    The report is one HTML file, which fetches nothing and sends nothing.

    [bold]Example[/bold]

    [cyan]gecasmo report dbn.fit clicks.parquet -o report.html[/cyan]
    """
    from gecasmo.browser import Report, report_page, write_page
    from gecasmo.cli.lookup import load_fit
    from gecasmo.model.answers import told_unseen, unseen_shares

    place = report_place(output, target, fit, log, flag="--output")
    model = load_fit(fit)
    read = reading.read(log, output, instead="Give it a file that was ingested, or a part of it.")
    if read.log.n_sessions < 2 and not held_out:
        raise GecasmoError(
            f"{log}: the log has {counted(read.log.n_sessions, 'page')}, and a report fits the "
            "model to most pages to see how well it predicts the others."
        )
    words = reading.words(log)
    with output.working(f"Writing a report on {model.name}"):
        text = report_page(Report(model, read.log, held_out, seed, said_command(), words))
        write_page(text, place)
    unseen = unseen_shares(model, read.log)
    facts = {"model": model.name, "pages": read.log.n_sessions, "unseen": unseen}
    said = f"A report on {model.name}, written to {place_name(place)}."
    told = wrapped(told_unseen(unseen), "  ", "  ")
    output.summarise(place, {**facts, "reading": read.facts}, said, *told)


def report_place(
    output: Output, path: str, *inputs: Any, flag: str = "--report", **besides: Any
) -> Path:
    """Where a report goes; what it needs is looked for before the work, not after it."""
    for package in ("altair", "vl_convert"):
        extra(package, "A report", "gecasmo[plots]")
    return page_place(output, path, *inputs, flag=flag, **besides)


def page_place(output: Output, path: str, *inputs: Any, flag: str, **besides: Any) -> Path:
    """Where a page for the browser goes; browsers go by the ending of its name."""
    place = output.place(path, *inputs, flag=flag, **besides)
    if not is_stream(place) and place.suffix.lower() not in (".html", ".htm"):
        hint = " Print it from a browser, for a PDF." if place.suffix.lower() == ".pdf" else ""
        raise GecasmoError(
            f"{flag} {path}: this is a page for a browser; its name has to end in .html.{hint}"
        )
    return place


def said_command() -> str:
    """What was typed, as far as it is about gecasmo: no paths of the machine."""
    return shlex.join(["gecasmo", *sys.argv[1:]])
