"""`gecasmo demo`: simulate a log, fit three models, compare them on pages they have not seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output
from gecasmo.estimation import EM

if TYPE_CHECKING:
    from rich.table import Table

    from gecasmo.evaluation import Evaluation

    Row = tuple[str, Evaluation, float | None]


@bundled
def demo(
    output: Output,
    pages: Annotated[int, typer.Option(help="Pages to simulate.", min=200)] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
) -> None:
    """Simulate a log, fit DBN and UBM beside the rank-CTR baseline, and compare them.

    [bold]Example[/bold]

    [cyan]gecasmo demo --pages 20000[/cyan]
    """
    from gecasmo import DBN, RCTR, UBM
    from gecasmo.cli.streams import result_console
    from gecasmo.cli.watching import WatchedEM, fit_bar
    from gecasmo.simulation import demo_log

    is_telling = not (output.quiet or output.json)
    if is_telling:
        result_console().print(
            f"Simulating {pages:,} pages of 10 results. Users read downwards, click what\n"
            "attracts them, leave when satisfied, and else go on with probability 0.9.\n"
        )
    with output.working("Simulating"):
        log, truth = demo_log(pages, seed)
        train, test = log.split(test=0.2, by="session", seed=seed)
    if is_telling:
        result_console().print(repr(log))
    rows: list[Row] = []
    fitted = []
    for model in (RCTR, UBM, DBN):
        began = time.perf_counter()
        with fit_bar(output, model.__name__, EM().tol) as bar:
            method = WatchedEM(show=bar.show if bar else None)
            fitted.append(model().fit(train, method, progress=False))
        seconds = time.perf_counter() - began
        rows.append((model.__name__, fitted[-1].evaluate(test), seconds))
    rows.append(("truth", truth.evaluate(test), None))
    continuation = fitted[-1].parameters["continuation"]["probability"][0]
    data = {
        "pages": pages,
        "test_pages": test.n_sessions,
        "models": [
            {"model": name, "seconds": seconds, **found.to_dict()} for name, found, seconds in rows
        ],
        "continuation": continuation,
    }
    output.show(
        data,
        _table(rows, test.n_sessions),
        f"DBN estimates continuation as {continuation:.3f}; the simulated users had 0.9.",
    )


def _table(rows: list[Row], n_sessions: int) -> Table:
    from rich.table import Table

    table = Table(title=f"On {n_sessions:,} pages that no model has seen", title_justify="left")
    table.add_column("model")
    for name in (
        "log-likelihood\nper session",
        "perplexity\nmarginal",
        "perplexity\nconditional",
        "seconds\nto fit",
    ):
        table.add_column(name, justify="right")
    for name, evaluation, seconds in rows:
        table.add_row(
            name,
            f"{evaluation.log_likelihood:.4f}",
            f"{evaluation.marginal.arithmetic:.4f}",
            f"{evaluation.conditional.arithmetic:.4f}",
            "" if seconds is None else f"{seconds:.1f}",
        )
    table.caption = "Perplexity: arithmetic mean over ranks. Seconds include compiling."
    table.caption_justify = "left"
    return table
