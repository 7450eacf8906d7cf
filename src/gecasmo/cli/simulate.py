"""`gecasmo simulate FIT PAGES -o FILE`: clicks of simulated users."""

from __future__ import annotations

from typing import Annotated

import typer

from gecasmo.cli.arguments import FitArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading


@bundled
def simulate(
    fit: FitArgument,
    pages: Annotated[
        str,
        typer.Argument(
            metavar="PAGES",
            help="A log whose pages are shown again; clicks in it play no part. - is standard "
            "input. Of a stored log, the output is a stored log too.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; the name tells the format. - is standard output, as CSV.",
        ),
    ],
    reading: Reading,
    output: Output,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulation.")] = 0,
) -> None:
    """Simulate clicks on given pages.

    [bold]Examples[/bold]

    [cyan]gecasmo simulate dbn.fit pages.parquet -o clicks.parquet --seed 7[/cyan]

    [cyan]gecasmo simulate dbn.fit pages.csv -o - | gecasmo check -[/cyan]
    """
    from gecasmo.cli.loading import load_fit
    from gecasmo.cli.writing import PIPE, check_pipe, check_target, write_table
    from gecasmo.errors import GecasmoError
    from gecasmo.model.streaming import is_stored

    check_target(target)
    check_pipe(target, output)
    model = load_fit(fit)
    read = reading.read_any(pages, output, clicks=False)
    is_large = is_stored(read.log)
    if is_large and target == PIPE:
        raise GecasmoError(f"{pages} is a stored log: its clicks go into another, such as x.gclog.")
    with output.working(f"Simulating {model.name}"):
        clicked = model.simulate(read.log, seed=seed, path=target if is_large else None)
    if target == PIPE:
        write_table(clicked.to_frame(), PIPE, "csv")
    elif not is_large:
        clicked.write(target)
    n_clicks = clicked.n_clicks if is_large else int(clicked.click.sum())
    facts = {
        "model": model.name,
        "sessions": clicked.n_sessions,
        "results": clicked.n_results,
        "clicks": n_clicks,
        "seed": seed,
        "written": target,
        "reading": read.facts,
    }
    text = f"{n_clicks:,} clicks on {clicked.n_sessions:,} pages of {clicked.n_results:,} results"
    if target == PIPE:
        output.say(f"{text}.")
    else:
        output.summarise(facts, f"{text}, written to {target}.")
