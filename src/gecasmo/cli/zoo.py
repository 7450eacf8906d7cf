"""Look around: what there is before one has a log.

`gecasmo demo` simulates a log, fits three models and compares them on pages they have not seen;
`gecasmo models` lists the zoo, and `gecasmo describe MODEL` shows the program, coins and automaton
of one model. `gecasmo paper` reproduces the experiment of the GCM paper, and beats it; `gecasmo
gap` answers its third question.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gecasmo.cli.flags import ModelArgument, bundled
from gecasmo.cli.output import Output, result_console, write_result
from gecasmo.errors import GecasmoError, extra
from gecasmo.estimation import EM
from gecasmo.report import Column, TextTable

if TYPE_CHECKING:
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
    from gecasmo.cli.progress import WatchedEM, fit_bar
    from gecasmo.simulation import demo_log

    is_telling = not (output.quiet or output.json)
    if is_telling:
        result_console().print(
            f"Simulating {pages:,} pages of 10 results. Users read downwards, click what\n"
            "attracts them, leave when satisfied, and else continue with probability 0.9.\n"
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
        "Perplexity: arithmetic mean over ranks. Seconds include compiling.",
        f"DBN estimates continuation as {continuation:.3f}; the simulated users had 0.9.",
    )


def _table(rows: list[Row], n_sessions: int) -> TextTable:
    found = [evaluation for _, evaluation, _ in rows]
    seconds = ["" if took is None else f"{took:.1f}" for *_, took in rows]
    return TextTable(
        [
            Column("model", [name for name, *_ in rows], is_text=True),
            Column("log-likelihood\nper session", [f"{each.log_likelihood:.4f}" for each in found]),
            Column("perplexity\nmarginal", [f"{each.marginal.arithmetic:.4f}" for each in found]),
            Column(
                "perplexity\nconditional", [f"{each.conditional.arithmetic:.4f}" for each in found]
            ),
            Column("seconds\nto fit", seconds),
        ],
        f"On {n_sessions:,} pages that no model has seen",
    )


@bundled
def models(
    output: Output,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the whole page about them, docs/models.md.")
    ] = False,
) -> None:
    """List all included models, by what they need in a log.

    [bold]Examples[/bold]

    [cyan]gecasmo models[/cyan]

    [cyan]gecasmo models --markdown > docs/models.md[/cyan]
    """
    from gecasmo.cli.models_page import group_of, models_page, needs_in_words
    from gecasmo.models import CATALOGUE

    if markdown:
        write_result(models_page())
        return
    listed = [
        {
            "model": name,
            "group": group_of(model),
            "what a user does": (model.__doc__ or "").split("\n")[0],
            "coins": list(model().forms),
            "needs": needs_in_words(model),
        }
        for name, model in CATALOGUE.items()
    ]
    tables: list[TextTable | str] = []
    for group in dict.fromkeys(str(row["group"]) for row in listed):
        rows = [row for row in listed if row["group"] == group]
        shown = ["what a user does", "coins"]
        shown += ["needs"] if any(row["needs"] != "clicks" for row in rows) else []
        columns = [
            Column("model", [str(row["model"]) for row in rows], is_text=True),
            *(_wide(name, [_words(row[name]) for row in rows]) for name in shown),
        ]
        tables += [*([""] if tables else []), TextTable(columns, group)]
    output.show({"models": listed}, *tables)


def _wide(heading: str, texts: list[str]) -> Column:
    return Column(heading, texts, is_text=True, least=20, wraps=True)


def _words(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


@bundled
def describe(model: ModelArgument, output: Output) -> None:
    """Show a model: its program, its coins and its automaton.

    [bold]Examples[/bold]

    [cyan]gecasmo describe DBN[/cyan]

    [cyan]gecasmo describe my_models.py:Patient[/cyan]
    """
    from gecasmo.cli.lookup import find_model

    found = find_model(model)
    data = {
        "model": found.name,
        "what a user does": (type(found).__doc__ or "").split("\n")[0],
        "coins": [
            {"coin": coin, "key": list(found.keys[coin]), "form": repr(form)}
            for coin, form in found.forms.items()
        ],
        "relevance": list(found.relevance),
        "states": found.automaton.n_states,
        "program": found.program,
    }
    if output.json:
        output.show(data)
    else:
        write_result(str(found))


@bundled
def paper(
    output: Output,
    seeds: Annotated[int, typer.Option(help="How many logs to simulate.", min=1, max=100)] = 4,
    users: Annotated[int, typer.Option(help="Users of each simulated log.", min=200)] = 20_000,
    chart: Annotated[
        Path | None,
        typer.Option(help="Draw the bars into this file (PNG, SVG, HTML, JSON)."),
    ] = None,
) -> None:
    """Reproduce the experiment of the GCM paper, and improve on it.

    Simulates its log, fits CZM and UBM through the position of items, through a network, with a
    table of items and with both, and scores them on users never seen.

    [bold]Example[/bold]

    [cyan]gecasmo paper --seeds 2 --chart perplexity.png[/cyan]
    """
    from gecasmo.experiments import paper as experiment

    if chart is not None:
        _check_chart(chart)  # before the work, not after it
    chosen = experiment.SEEDS[:seeds]
    with output.working("Simulating") as tell:
        result = experiment.run_paper(chosen, users, tell=tell)
    if chart is not None:
        experiment.draw_perplexity(result, chart)
    data = {
        "seeds": chosen,
        "users": users,
        "models": result.means(),
        "by_rank": result.by_rank(),
        "claims": [{"claim": claim, "holds": holds} for claim, holds in result.claims()],
        "chart": chart,
    }
    output.show(data, "" if output.json else experiment.told(result))
    if chart is not None:
        output.say(f"\nThe chart is in {chart}.")


@bundled
def gap(
    output: Output,
    pages: Annotated[int, typer.Option(help="Pages to fit, in each world.", min=100)] = 4_500,
    world: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A simulated world: redundancy, tiredness, device, all (of these) or paper; may "
            "be repeated. By default all and paper.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulated logs.", min=0)] = 1,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep each result there as soon as it is known; what is there is not done again.",
        ),
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Write the tables into this page, between its marks.")
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(help="Draw all models beside NCM into this file (PNG, SVG, HTML, JSON)."),
    ] = None,
) -> None:
    """How far networks behind coins close the gap to a black box.

    Fits RCTR, DBN and UBM with tables, features, networks and recurrent networks, and NCM, to
    simulated logs; scores them on other pages, and holds their hidden events against the truth.
    Takes some three minutes of a processor.

    [bold]Example[/bold]

    [cyan]gecasmo gap --pages 1000 --world tiredness --keep gap.results[/cyan]
    """
    extra("torch", "gecasmo gap", "gecasmo[torch]")
    from gecasmo.experiments import gap as experiment

    worlds = world or list(experiment.WORLDS)
    unknown = [name for name in worlds if name not in experiment.TITLES]
    if unknown:
        raise GecasmoError(f"--world {unknown[0]}: choose of {', '.join(experiment.TITLES)}.")
    if docs is not None and not docs.is_file():
        raise GecasmoError(f"--docs {docs}: there is no such file.")
    if chart is not None:
        _check_chart(chart)  # before the work, not after it
    with output.working("Simulating") as tell:
        sizes = (pages, max(100, pages // 3))
        result = experiment.run_gap(worlds, *sizes, seed=seed, keep=keep, tell=tell)
    if docs is not None:
        experiment.write_docs(result, docs)
    if chart is not None:
        experiment.draw_gap(result, chart)
    tables = {name: result.table(name) for name in worlds}
    data = {"pages": pages, "seed": seed, "worlds": tables, "docs": docs, "chart": chart}
    output.show(data, "" if output.json else experiment.told(result))


def _check_chart(path: Path) -> None:
    for package in ("altair", "vl_convert"):
        extra(package, "--chart", "gecasmo[plots]")
    if path.suffix.lower() not in (".png", ".svg", ".html", ".json"):
        raise GecasmoError(f"--chart {path}: the name has to end in .png, .svg, .html or .json.")
    if not path.absolute().parent.is_dir():
        raise GecasmoError(f"--chart {path}: there is no such folder.")
