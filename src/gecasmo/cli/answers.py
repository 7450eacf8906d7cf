"""What a fitted model says about a log.

`gecasmo evaluate FIT LOG` says how well it predicts the log, `gecasmo predict FIT LOG -o FILE` how
probable a click is, result by result, and `gecasmo simulate FIT PAGES -o FILE` has simulated users
click.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import AnyLogArgument, FitArgument, Impossible, ImpossibleFlag, bundled
from gecasmo.cli.log_flags import LogFlags
from gecasmo.cli.output import PIPE, Output, check_parent, check_pipe, write_table

if TYPE_CHECKING:
    from gecasmo.model.base import Model
    from gecasmo.model.stories import Made


@bundled
def evaluate(
    fit: FitArgument,
    log: AnyLogArgument,
    reading: LogFlags,
    output: Output,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Score a fitted model on a log: log-likelihood, and perplexity by rank.

    [bold]Example[/bold]

    [cyan]gecasmo evaluate dbn.fit next_week.parquet[/cyan]

    Scores on the log that the model was fitted to flatter it; to choose a model, use
    [cyan]gecasmo compare[/cyan], which keeps pages apart.
    """
    from gecasmo.cli.lookup import load_fit

    model = load_fit(fit)
    read = reading.read_any(log, output)
    with output.working(f"Evaluating {model.name}"):
        found = model.evaluate(read.log, impossible=impossible.value)
    data = {
        "model": found.model,
        "sessions": found.n_sessions,
        "results": found.n_results,
        "impossible_sessions": found.n_impossible,
        **found.to_dict(),
        "unseen": found.unseen,
        "by_rank": found.by_rank,
        "reading": read.facts,
    }
    output.show(data, str(found))


class Kind(StrEnum):
    """What is known when a click is predicted."""

    conditional = "conditional"
    marginal = "marginal"


@bundled
def predict(
    fit: FitArgument,
    log: AnyLogArgument,
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .parquet, .csv, .tsv or .jsonl (text also with .gz or .zst). Names of "
            "other tables, such as .xlsx, are refused; a name without an ending becomes a "
            "folder, with a Parquet file for each partition of a stored log. What predict wrote "
            "before is replaced.",
        ),
    ],
    reading: LogFlags,
    output: Output,
    kind: Annotated[
        Kind,
        typer.Option(help="Given the clicks above a result, or when no click is known (marginal)."),
    ] = Kind.conditional,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Write the probability of a click on every result of a log, of any size.

    [bold]Examples[/bold]

    [cyan]gecasmo predict dbn.fit clicks.parquet -o predicted.parquet[/cyan]

    [cyan]gecasmo predict dbn.fit big.gclog -o predicted --kind marginal[/cyan]

    Of a stored log whose equal pages are stored once, there is a row for each stored result, and
    [cyan]weight[/cyan] says how often its page occurred.
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.errors import GecasmoError
    from gecasmo.model.answers import check_place

    if target == PIPE:
        raise GecasmoError("--output -: predictions are not for a pipe; name a file.")
    place = Path(target).expanduser()
    check_place(place)
    check_parent(place, target)
    model = load_fit(fit)
    read = reading.read_any(log, output)
    with output.working(f"Predicting with {model.name}"):
        written = model.predict(read.log, target, kind=kind.value, impossible=impossible.value)
    facts = {
        "model": model.name,
        "kind": kind.value,
        "results": written.n_results,
        "rows": written.n_rows,
        "left_out_sessions": written.n_left_out,
        "unseen": written.unseen,
        "written": target,
        "reading": read.facts,
    }
    output.summarise(facts, str(written))


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
    reading: LogFlags,
    output: Output,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
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
    from gecasmo.cli.lookup import load_fit
    from gecasmo.errors import GecasmoError
    from gecasmo.model.frame_files import KINDS, table_kind
    from gecasmo.model.log_parts import is_stored
    from gecasmo.model.stories import simulate_table

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
    from gecasmo.model.stories import Made

    clicked = model.simulate(log, seed=seed)
    if target == PIPE:
        write_table(clicked.to_frame(), PIPE, "csv")
    else:
        clicked.write(target)
    return Made(clicked.n_sessions, clicked.n_results, int(clicked.click.sum()))


def _stored(model: Model, log: Any, target: str, seed: int, force: bool) -> Made:
    from gecasmo.model.stories import Made

    clicked = model.simulate(log, seed=seed, path=target, overwrite=force)
    return Made(clicked.n_sessions, clicked.n_source_results, clicked.n_clicks)
