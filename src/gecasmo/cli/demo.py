"""`gecasmo demo`: simulate a log, fit three models, compare them on pages they have not seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from gecasmo.evaluation import Evaluation

    Row = tuple[str, Evaluation, float | None]


def demo(
    pages: Annotated[int, typer.Option(help="Pages to simulate.", min=200)] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
) -> None:
    """Simulate a log, fit DBN and UBM beside the rank-CTR baseline, and compare them.

    Example: gecasmo demo --pages 20000
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from gecasmo import DBN, RCTR, UBM
    from gecasmo.simulation import demo_log

    console = Console()
    console.print(
        f"Simulating {pages:,} pages of 10 results. Users read downwards, click what\n"
        "attracts them, leave when satisfied, and else go on with probability 0.9.\n"
    )
    log, truth = demo_log(pages, seed)
    train, test = log.split(test=0.2, by="session", seed=seed)
    console.print(repr(log), highlight=False)
    rows: list[Row] = []
    with Progress(
        TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        steps = progress.add_task("compiling and fitting", total=3)
        fitted = []
        for model in (RCTR, UBM, DBN):
            progress.update(steps, description=f"fitting {model.__name__}")
            began = time.perf_counter()
            fitted.append(model().fit(train, progress=False))
            seconds = time.perf_counter() - began
            evaluation = fitted[-1].evaluate(test)
            rows.append((model.__name__, evaluation, seconds))
            progress.advance(steps)
        progress.update(steps, description="done")
    rows.append(("truth", truth.evaluate(test), None))
    console.print(_table(rows, test.n_sessions))
    continuation = fitted[-1].parameters["continuation"]["probability"][0]
    console.print(
        f"DBN estimates continuation as [b]{continuation:.3f}[/b]; the simulated users had 0.9."
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
