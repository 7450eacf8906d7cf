"""Look around: what there is before one has a log.

`gecasmo demo` simulates a log, fits three models and compares them on pages they have not seen;
`gecasmo models` lists the zoo, and `gecasmo describe MODEL` shows the program, coins and automaton
of one model.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gecasmo.cli.flags import ModelArgument, bundled
from gecasmo.cli.output import Output, result_console, write_result
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
def models(output: Output) -> None:
    """List the models of the zoo.

    [bold]Example[/bold]

    [cyan]gecasmo models[/cyan]
    """
    from gecasmo.models import CATALOGUE

    listed = [
        {
            "model": name,
            "what a user does": (model.__doc__ or "").split("\n")[0],
            "coins": list(model().forms),
        }
        for name, model in CATALOGUE.items()
    ]
    columns = [
        Column("model", [str(row["model"]) for row in listed], is_text=True),
        *(
            Column(name, [_words(row[name]) for row in listed], is_text=True, least=20, wraps=True)
            for name in ("what a user does", "coins")
        ),
    ]
    output.show({"models": listed}, TextTable(columns))


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
