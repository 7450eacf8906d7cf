"""`gecasmo paper`: the experiment of the GCM paper, reproduced and beaten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gecasmo.cli.flags import bundled
from gecasmo.cli.output import Output, error_console, result_console

if TYPE_CHECKING:
    from rich.console import Console

    from gecasmo.experiments import PaperResult


@bundled
def paper(
    output: Output,
    seeds: Annotated[int, typer.Option(help="How many logs to simulate.", min=1, max=100)] = 4,
    users: Annotated[int, typer.Option(help="Users of each simulated log.", min=200)] = 20_000,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the paper's bar chart into this file (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Reproduce the experiment of the GCM paper, and beat it.

    Simulates its log, fits CZM and UBM through the position of items, through a network, with a
    table of items and with both, and scores them on users never seen.

    [bold]Example[/bold]

    [cyan]gecasmo paper --seeds 2 --chart perplexity.png[/cyan]
    """
    from rich.text import Text

    from gecasmo.experiments.paper import CONTENDERS, SEEDS, n_steps, run_paper

    if chart is not None:
        _check_chart(chart)  # before the work, not after it
    chosen = [*SEEDS, *range(4, 101)][:seeds]
    with _steps(output, n_steps(chosen)) as tell:
        result = run_paper(chosen, users, tell=tell)
    if chart is not None:
        from gecasmo.experiments.chart import draw_perplexity

        draw_perplexity(result, chart)
    if output.json:
        output.show(
            {
                "seeds": chosen,
                "users": users,
                "models": result.means(),
                "by_rank": result.by_rank(),
                "claims": [{"claim": claim, "holds": holds} for claim, holds in result.claims()],
                "chart": chart,
            }
        )
        return
    console = result_console()
    _print_overall(console, result)
    _print_by_rank(console, result)
    for claim, holds in result.claims():
        mark = ("yes", "green") if holds else ("NO ", "red")
        console.print(Text.assemble(mark, f"  {claim}"))
    if not all(contender.is_available for contender in CONTENDERS):
        output.say('\nWithout PyTorch there are no networks: pip install "gecasmo[torch]".')
    if chart is not None:
        output.say(f"\nThe chart is in {chart}.")


@contextmanager
def _steps(output: Output, n_steps: int) -> Iterator[Callable[[str], None]]:
    """A function to call with what is done next; it moves a bar if somebody looks at it."""
    if not output.has_progress:
        yield lambda words: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = (
        TextColumn("{task.description:<40}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*bar, console=error_console(), transient=True) as progress:
        task = progress.add_task("", total=n_steps)

        def tell(words: str) -> None:
            progress.update(task, description=words)
            progress.advance(task)

        yield tell


def _check_chart(path: Path) -> None:
    from gecasmo.errors import GecasmoError
    from gecasmo.experiments.chart import figure

    figure()  # says so if Matplotlib is not there
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise GecasmoError(f"--chart {path}: the name has to end in .png, .svg or .pdf.")
    if not path.absolute().parent.is_dir():
        raise GecasmoError(f"--chart {path}: there is no such folder.")


def _print_overall(console: Console, result: PaperResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    n = len(result.seeds)
    title = f"On users never seen, mean of {n} seed{'s' if n > 1 else ''}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("model")
    for name in (
        "marginal\nperplexity",
        "conditional\nperplexity",
        "log-\nlikelihood",
        "contin-\nuation",
        "seconds\nto fit",
    ):
        table.add_column(name, justify="right")
    table.columns[0].no_wrap = True
    for model, marginal, conditional, likelihood, continuation, seconds in result.means().rows():
        table.add_row(
            model,
            f"{marginal:.4f}",
            f"{conditional:.4f}",
            f"{likelihood:.4f}",
            "" if continuation is None else f"{continuation:.3f}",
            f"{seconds:.1f}" if seconds else "",
        )
    table.caption = (
        "Pooled perplexity. Published, on training sessions: CZM 1.38, UBM 1.77;\n"
        "from the published click rates alone 1.35. Sigmoid and network read the\n"
        "position of items, the sum adds a table. The oracle knows every user."
    )
    table.caption_justify = "left"
    console.print(table)


def _print_by_rank(console: Console, result: PaperResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from gecasmo.experiments.paper import PUBLISHED, PUBLISHED_OVERALL

    table = Table(
        title="\nMarginal perplexity by rank: the paper's, and ours",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("rank", justify="right")
    published = ("CZM", "UBM", "RCTR")
    for name in published:
        table.add_column(f"{name}\npaper", justify="right", style="dim")
    shown = [name for name in result.names if "sum" not in name and "network" not in name]
    for name in shown:
        table.add_column(name.replace(", item ", "\n").replace(", ", "\n"), justify="right")
    by_rank = result.by_rank()
    for rank, *theirs in PUBLISHED.rows():
        row = by_rank.row(rank - 1, named=True)
        table.add_row(
            str(rank), *(f"{v:.3f}" for v in theirs), *(f"{row[name]:.3f}" for name in shown)
        )
    means = {row["model"]: row["marginal"] for row in result.means().rows(named=True)}
    table.add_section()
    table.add_row(
        "all",
        *(f"{PUBLISHED_OVERALL[name]:.2f}" for name in published),
        *(f"{means[name]:.3f}" for name in shown),
    )
    console.print(table)
