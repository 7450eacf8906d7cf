"""`gecasmo compare LOG MODEL...`: several models on pages that none of them has seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import (
    Impossible,
    ImpossibleFlag,
    LevelFlag,
    LogArgument,
    LogFlags,
    MaxIterFlag,
    ModelsArgument,
    Plotting,
    TolFlag,
    bundled,
    output_flag,
)
from gecasmo.cli.output import Output, place_name, table_format, write_table
from gecasmo.cli.show import report_place, said_command
from gecasmo.files import STANDARD_OUTPUT
from gecasmo.report import TextTable

if TYPE_CHECKING:
    import polars as pl


@bundled
def compare(
    log: LogArgument,
    models: ModelsArgument,
    reading: LogFlags,
    output: Output,
    plotting: Plotting,
    test: Annotated[
        float, typer.Option(help="The share of sessions that models are tested on.")
    ] = 0.2,
    by: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Never split this: session, query, or a user column."),
    ] = "session",
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Test on the latest pages by this column; for a date format write day:%d/%m/%Y.",
        ),
    ] = None,
    heldout: Annotated[
        str | None, typer.Option(metavar="LOG", help="Test on this log, and train on all of LOG.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and the bootstrap.")] = 0,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Bootstrap samples for the intervals; 0 for none.")
    ] = 200,
    over: Annotated[
        str, typer.Option(metavar="COLUMN", help="What the bootstrap draws: query, session.")
    ] = "query",
    level: LevelFlag = 0.9,
    judgments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Judgments by people (query, doc, grade, or TREC qrels) to score relevance by.",
        ),
    ] = None,
    max_iter: MaxIterFlag = 500,
    tol: TolFlag = 1e-6,
    impossible: ImpossibleFlag = Impossible.floor,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested",
            help="Also test models against special cases of them, by simulation.",
        ),
    ] = False,
    replicates: Annotated[
        int, typer.Option(min=19, help="Simulated logs for each such test, at most.")
    ] = 200,
    loo: Annotated[
        bool,
        typer.Option(
            "--loo", help="With --nested: also fit by Gibbs, and score each page by all others."
        ),
    ] = False,
    per_rank: Annotated[bool, typer.Option("--per-rank", help="Also show scores by rank.")] = False,
    target: Annotated[
        str | None,
        output_flag(
            "Also write the table: .csv, .tsv, .parquet, or everything as .json; - is "
            "standard output, as CSV."
        ),
    ] = None,
    mail: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="FILE", help="Also write a page that can be mailed: report.html."
        ),
    ] = None,
) -> None:
    """Fit several models to the same pages, and score them on pages that none has seen.

    [bold]Examples[/bold]

    [cyan]gecasmo compare clicks.parquet PBM UBM DBN[/cyan]

    [cyan]gecasmo compare clicks.csv DBN my_models.py:Patient --time day --per-rank[/cyan]

    [cyan]gecasmo compare clicks.csv SDBN DBN --nested[/cyan]

    The click rates by rank and by document are always in the table. A model is only called better
    if the interval of the difference says so.
    """
    from gecasmo.cli.lookup import find_model
    from gecasmo.cli.progress import WatchedEM, comparing_bar
    from gecasmo.evaluation import compare as compare_models
    from gecasmo.plots import comparison_charts

    plotting.check()
    place = None
    inputs = (log, heldout, judgments, *models)
    mailed = None
    if mail is not None:
        mailed = report_place(output, mail, *inputs, besides={"--output": target})
    if target is not None:
        table_format(target)
        place = output.place(target, *inputs)
    chosen = [find_model(name) for name in models]
    instead = (
        "Compare on some of the files that were ingested, or fit each model with `gecasmo fit` and "
        "score it on other pages with `gecasmo evaluate`, which take stored logs."
    )
    read = reading.read(log, output, instead=instead)
    tested = None if heldout is None else reading.read(heldout, output, instead=instead).log
    with comparing_bar(output, tol) as (tell, show):
        found = compare_models(
            read.log,
            chosen,
            test=test,
            by=by,
            time=time,
            seed=seed,
            heldout=tested,
            bootstrap=bootstrap,
            over=over,
            level=level,
            judgments=judgments,
            method=WatchedEM(max_iter=max_iter, tol=tol, show=show),
            impossible=impossible.value,
            nested=nested,
            replicates=replicates,
            loo=loo,
            tell=tell,
        )
    data = {**found.to_dict(), "reading": read.facts}
    drawn = plotting.draw(comparison_charts, output, found)
    data["plots"] = drawn
    if place is not None:
        write_table(found.table, place, data)
    if mailed is not None:
        from gecasmo.browser import comparison_page, write_page

        page = comparison_page(found, read.log, said_command(), reading.words(log))
        write_page(page, mailed)
    shown = (found, *(_by_rank(found.by_rank) if per_rank else ()))
    if STANDARD_OUTPUT in (place, mailed):
        output.summarise(STANDARD_OUTPUT, data, *shown)
    else:
        output.show(data, *shown)
    if place is not None:
        output.say(f"Written to {place_name(place)}.")
    if mailed is not None:
        output.say(f"The report is in {place_name(mailed)}.")
    if drawn:
        output.say(f"Charts: {', '.join(drawn)}.")


def _by_rank(frame: pl.DataFrame) -> Iterator[Any]:
    """Perplexity by rank with a column a model, once for each kind."""
    for kind in ("conditional", "marginal"):
        models = frame.pivot("model", index="rank", values=kind).sort("rank")
        yield ""
        yield TextTable.of(models, f"{kind.capitalize()} perplexity by rank", digits=4)
