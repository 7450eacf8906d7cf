"""`gecasmo simulate FIT PAGES -o FILE`: clicks of simulated users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.arguments import FitArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading

if TYPE_CHECKING:
    from gecasmo.model.base import Model
    from gecasmo.model.simulating import Made


@bundled
def simulate(
    fit: FitArgument,
    pages: Annotated[
        str,
        typer.Argument(
            metavar="PAGES",
            help="A log whose pages are shown again; clicks in it play no part. - is standard "
            "input; a stored log such as big.gclog is taken, too.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; the name tells the format: .parquet, .csv, .tsv, .jsonl. Of a stored "
            "log, any other name becomes a stored log. - is standard output, as CSV.",
        ),
    ],
    reading: Reading,
    output: Output,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulation.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a stored log that is there already.")
    ] = False,
) -> None:
    """Simulate clicks on given pages.

    [bold]Examples[/bold]

    [cyan]gecasmo simulate dbn.fit pages.parquet -o clicks.parquet --seed 7[/cyan]

    [cyan]gecasmo simulate dbn.fit pages.csv -o - | gecasmo check -[/cyan]

    [cyan]gecasmo simulate dbn.fit big.gclog -o made.gclog[/cyan]
    """
    from gecasmo.cli.loading import load_fit
    from gecasmo.cli.writing import PIPE, check_parent, check_pipe
    from gecasmo.errors import GecasmoError
    from gecasmo.model.frame_files import KINDS, table_kind
    from gecasmo.model.simulating import simulate_table
    from gecasmo.model.streaming import is_stored

    check_pipe(target, output)
    place = Path(target).expanduser()
    kind = "csv" if target == PIPE else table_kind(place, "clicks")
    if target != PIPE:
        check_parent(place, target)
        if kind is not None and place.is_dir():
            raise GecasmoError(f"--output {target}: that is a folder; name a file.")
    model = load_fit(fit)
    read = reading.read_any(pages, output, clicks=False)
    is_large = is_stored(read.log)
    if is_large and target == PIPE:
        raise GecasmoError(
            f"{pages} is a stored log: its clicks go into a file, or into another, such as x.gclog."
        )
    if not is_large and kind is None:
        raise GecasmoError(f"--output {target}: name a file that ends in {KINDS}.")
    with output.working(f"Simulating {model.name}"):
        if not is_large:
            made = _in_memory(model, read.log, target, seed)
        elif kind is None:
            made = _stored(model, read.log, target, seed, force)
        else:
            made = simulate_table(model, read.log, place, kind, seed)
    facts = {
        "model": model.name,
        **made._asdict(),
        "seed": seed,
        "written": target,
        "reading": read.facts,
    }
    text = f"{made.clicks:,} clicks on {made.sessions:,} pages of {made.results:,} results"
    if target == PIPE:
        output.say(f"{text}.")
    else:
        output.summarise(facts, f"{text}, written to {target}.")


def _in_memory(model: Model, log: Any, target: str, seed: int) -> Made:
    from gecasmo.cli.writing import PIPE, write_table
    from gecasmo.model.simulating import Made

    clicked = model.simulate(log, seed=seed)
    if target == PIPE:
        write_table(clicked.to_frame(), PIPE, "csv")
    else:
        clicked.write(target)
    return Made(clicked.n_sessions, clicked.n_results, int(clicked.click.sum()))


def _stored(model: Model, log: Any, target: str, seed: int, force: bool) -> Made:
    from gecasmo.model.simulating import Made

    clicked = model.simulate(log, seed=seed, path=target, overwrite=force)
    return Made(clicked.n_sessions, clicked.n_source_results, clicked.n_clicks)
