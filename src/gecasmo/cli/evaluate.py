"""`gecasmo evaluate FIT LOG`: how well a fitted model predicts a log."""

from __future__ import annotations

from gecasmo.cli.arguments import AnyLogArgument, FitArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.choices import Impossible, ImpossibleFlag
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading


@bundled
def evaluate(
    fit: FitArgument,
    log: AnyLogArgument,
    reading: Reading,
    output: Output,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Score a fitted model on a log: log-likelihood, and perplexity by rank.

    [bold]Example[/bold]

    [cyan]gecasmo evaluate dbn.fit next_week.parquet[/cyan]

    Scores on the log that the model was fitted to flatter it; to choose a model, use
    [cyan]gecasmo compare[/cyan], which keeps pages apart.
    """
    from gecasmo.cli.loading import load_fit

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
        "by_rank": found.by_rank,
        "reading": read.facts,
    }
    output.show(data, str(found))
