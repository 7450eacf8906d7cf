"""Estimate a model and keep it in a file.

`gecasmo fit MODEL LOG -o FILE` estimates it from a log; `gecasmo update FIT LOG -o FILE` merges a
new log into a fit, such as yesterday's.
"""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import (
    AnyLogArgument,
    FitArgument,
    Impossible,
    ImpossibleFlag,
    LogArgument,
    LogFlags,
    MaxIterFlag,
    ModelArgument,
    Plotting,
    Read,
    ThreadsFlag,
    TolFlag,
    bundled,
    in_memory_sample,
    output_flag,
    seen_as,
)
from gecasmo.cli.guard import INTERRUPTED, NOT_CONVERGED, resumable
from gecasmo.cli.output import Output, place_name
from gecasmo.errors import ModelError
from gecasmo.report import TextTable

if TYPE_CHECKING:
    import polars as pl

    from gecasmo.evaluation import Selection
    from gecasmo.model.base import Model


AUTO = "auto"


class Estimation(StrEnum):
    """How to estimate."""

    em = "em"
    vb = "vb"
    gibbs = "gibbs"


def _select(log: Any, seed: int, tell: Any) -> Selection:
    """The model that predicts best; a stored log is judged by its first partition."""
    from gecasmo.evaluation import select_model
    from gecasmo.model.log_parts import is_stored

    pages = log.partition(0) if is_stored(log) else log
    return select_model(pages, seed=seed, tell=tell)


@bundled
def fit(
    model: ModelArgument,
    log: AnyLogArgument,
    target: Annotated[str, output_flag("The file for the fitted model; - is standard output.")],
    reading: LogFlags,
    output: Output,
    plotting: Plotting,
    max_iter: MaxIterFlag = 500,
    tol: TolFlag = 1e-6,
    threads: ThreadsFlag = None,
    impossible: ImpossibleFlag = Impossible.refuse,
    seed: Annotated[int, typer.Option(help="Seed of random starts, if the model needs any.")] = 0,
    start: Annotated[
        str | None, typer.Option(metavar="FIT", help="Start from the probabilities of this fit.")
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN=VALUE",
            help="A probability that is known, not estimated. `gecasmo describe MODEL` lists the "
            "coins of a model, which are its probabilities.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN=COLUMN,...", help="Give a coin a row per value of these columns."
        ),
    ] = None,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN=PRIOR",
            help="The prior of a coin: 'empirical' (learned from the log), or pseudo-counts of "
            "heads and tails such as 1,1.",
        ),
    ] = None,
    method: Annotated[
        Estimation,
        typer.Option(
            help="How to estimate: EM (the usual choice), variational Bayes, or Gibbs sampling."
        ),
    ] = Estimation.em,
    draws: Annotated[
        int | None, typer.Option(help="Draws of each chain of Gibbs sampling (1000).")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Sweeps of each chain before its draws (500).")
    ] = None,
    chains: Annotated[int | None, typer.Option(help="Chains of Gibbs sampling (4).")] = None,
    prefer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN[=MARGIN]",
            help="Expect more heads of this coin at a clicked result than at each result skipped "
            "above it, by MARGIN (0.5).",
        ),
    ] = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN=SHARE",
            help="Expect at most this share of the flips of a coin to be heads.",
        ),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="How hard to try to keep --prefer and --at-most; 0 does not try at all.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="For a stored log: where the fit keeps its progress, so that the same command "
            "continues after a kill. You can remove it once the fit is written.",
        ),
    ] = None,
) -> None:
    """Fit a model to a log, and keep it in a file.

    [bold]Examples[/bold]

    [cyan]gecasmo fit DBN clicks.parquet -o dbn.fit[/cyan]

    [cyan]gecasmo fit dbn clicks.csv.gz -o dbn.fit --doc url --fixed continuation=0.9[/cyan]

    [cyan]gecasmo fit auto clicks.parquet -o best.fit[/cyan]

    [cyan]gecasmo fit DBN clicks.parquet -o dbn.fit --method gibbs --draws 500[/cyan]

    [cyan]gecasmo fit BSS clicks.parquet -o bss.fit --at-most noise=0.1 --prefer attraction[/cyan]

    [cyan]gecasmo fit DBN big.gclog -o dbn.fit --checkpoint dbn.fitting[/cyan]

    [cyan]zcat clicks.csv.gz | gecasmo fit my_models.py:Patient - -o patient.fit --json[/cyan]

    With auto, a few models are cross-validated; the command says which one it takes, and why.

    Ends with code 4 if EM did not converge or chains do not agree, and with 130 if it was
    interrupted. The best fit so far is written in both cases.
    """
    from gecasmo.cli.lookup import constraints_of, find_model, load_fit, with_forms
    from gecasmo.cli.progress import WatchedEM, WatchedGibbs, WatchedVB, fit_bar
    from gecasmo.plots import fit_charts

    plotting.check()
    sampled = {"draws": draws, "warmup": warmup, "chains": chains}
    sampling: dict[str, Any] = {name: value for name, value in sampled.items() if value is not None}
    if sampling and method is not Estimation.gibbs:
        raise ModelError(f"--{next(iter(sampling))} is for --method gibbs.")
    place = output.place(target, model, log, is_text=False)
    given = (fixed or (), key or (), prior or ())
    constraints = constraints_of(prefer or (), at_most or (), strength)
    is_auto, selection = model.lower() == AUTO, None
    chosen = None if is_auto else with_forms(find_model(model), *given)
    begun = None if start is None else load_fit(start)
    read = reading.read_any(log, output)
    if chosen is None:
        with output.working("Choosing a model") as tell:
            selection = _select(read.log, seed, tell)
        chosen = with_forms(selection.model, *given)
    viewed = seen_as(chosen.view, read.log, log)
    began = time.perf_counter()
    how = (
        f"The same command resumes the fit from {checkpoint}; keep that folder until the fit is "
        "written, or remove it to give up."
    )
    with resumable(checkpoint, how), fit_bar(output, chosen.name, tol) as bar:
        show, is_kept = bar.show if bar else None, checkpoint is not None
        estimator: Any = WatchedEM(max_iter, tol, seed=seed, show=show, is_kept=is_kept)
        if method is Estimation.vb:
            estimator = WatchedVB(max_iter, tol, seed=seed, show=show)
        if method is Estimation.gibbs:
            estimator = WatchedGibbs(**sampling, seed=seed, show=show)
        chosen.fit(
            read.log,
            estimator,
            start=begun,
            threads=threads,
            progress=False,
            impossible=impossible.value,
            checkpoint=checkpoint,
            constraints=constraints,
        )
    del viewed
    seconds = time.perf_counter() - began
    chosen.save(place)
    drawn = plotting.draw(fit_charts, output, *in_memory_sample(chosen, read.log))
    facts = fit_facts(chosen, read) | {"seconds": seconds, "plots": drawn}
    if selection is not None:
        facts["selection"] = selection.to_dict()
    lines = [
        *([] if selection is None else [str(selection), ""]),
        f"{chosen.name} on {facts['sessions']:,} sessions: {_state(facts)}",
        f"log-likelihood per session {facts['log_likelihood_per_session']:.4f}",
    ]
    if facts["dropped_sessions"]:
        lines.append(f"{facts['dropped_sessions']:,} impossible sessions were left out")
    if facts["floored_results"]:
        lines.append(f"{facts['floored_results']:,} impossible observations counted as 1e-8")
    if chosen.report_ is not None:
        lines += map(str, chosen.report_.constraints)
    _tell(output, place, facts, *lines)
    if checkpoint is not None and not facts["interrupted"]:
        output.say(f"{checkpoint} can be removed: {target} has everything.")
    _end(facts, tol)


def fit_facts(model: Model, read: Read[Any]) -> dict[str, Any]:
    """How a fit went, for machines."""
    report = model.report_
    assert report is not None
    return {
        "model": model.name,
        "sessions": report.n_sessions,
        # Where equal pages are stored once, those of the source count.
        "results": getattr(read.log, "n_source_results", read.log.n_results),
        "log_likelihood": report.log_likelihood,
        "log_likelihood_per_session": report.log_likelihood / max(report.total_weight, 1e-300),
        "iterations": report.history[-1].iteration,
        "converged": report.converged,
        "interrupted": report.interrupted,
        "dropped_sessions": report.n_dropped,
        "floored_results": report.n_floored,
        **(
            {"constraints": [k._asdict() for k in report.constraints]} if report.constraints else {}
        ),
        "coins": coin_frame(model),
        "reading": read.facts,
    }


def coin_frame(model: Model) -> pl.DataFrame:
    """A row per coin: key, form, how many rows it has and what they answer on average."""
    import polars as pl

    states = model.states(whole=False)
    rows = []
    for coin, form in model.forms.items():
        told = {"coin": coin, "key": ", ".join(model.keys[coin]) or "one for all"}
        rows.append({**told, "form": repr(form), **_range(form, states[coin])})
    types = {"coin": pl.String, "key": pl.String, "form": pl.String, "rows": pl.Int64}
    types |= dict.fromkeys(("mean", "lowest", "highest"), pl.Float64)
    return pl.DataFrame(rows, schema=types)


def _range(form: Any, state: Any) -> dict[str, Any]:
    """How many rows a coin has, and where their probabilities are."""
    table = form.in_files(state)
    if table is not None:
        files = [file for file in table.files if file.n_rows]
        return {
            "rows": table.n_rows,
            "mean": sum(file.total for file in files) / max(table.n_rows, 1),
            "lowest": min((file.lowest for file in files), default=None),
            "highest": max((file.highest for file in files), default=None),
        }
    frame = form.to_frame(state)
    if "probability" not in frame.columns:
        return dict.fromkeys(("rows", "mean", "lowest", "highest"))
    means = frame["probability"]
    return {"rows": len(frame), "mean": means.mean(), "lowest": means.min(), "highest": means.max()}


def _state(facts: dict[str, Any]) -> str:
    state = "converged" if facts["converged"] else "not converged"
    if facts["interrupted"]:
        state = "interrupted"
    return f"{state} after {facts['iterations']:,} iterations and {facts['seconds']:.1f} seconds"


def _tell(output: Output, place: Path, facts: dict[str, Any], *lines: str) -> None:
    """Say how a fit went, and where it is."""
    ending = f"Written to {place_name(place)}."
    if facts.get("plots"):
        ending += f"\nCharts: {', '.join(facts['plots'])}."
    table = TextTable.of(facts["coins"], digits=4)
    output.summarise(place, facts, "\n".join(lines), "", table, "", ending)


def _end(facts: dict[str, Any], tol: float) -> None:
    """End with the code that tells how the fit ended."""
    if facts["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not facts["converged"] and tol > 0:
        raise typer.Exit(NOT_CONVERGED)


@bundled
def update(
    fit: FitArgument,
    log: LogArgument,
    target: Annotated[str, output_flag("The file for the updated model.")],
    reading: LogFlags,
    output: Output,
    decay: Annotated[
        float, typer.Option(help="The weight of the past from now on: above 0, at most 1.")
    ] = 0.98,
    max_iter: MaxIterFlag = 500,
    tol: TolFlag = 1e-6,
    threads: ThreadsFlag = None,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Merge a new log into a fit, without the old logs.

    [bold]Examples[/bold]

    [cyan]gecasmo update dbn.fit yesterday.parquet -o dbn.fit[/cyan]

    [cyan]gecasmo update dbn.fit day2.csv.gz --decay 1 -o dbn2.fit[/cyan]

    Ends with code 4 if EM did not converge, and with 130 if it was interrupted. The best fit so far
    is written in both cases.
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.cli.progress import WatchedEM, fit_bar

    place = output.place(target, log, is_text=False)  # the fit itself may be what is updated
    model = load_fit(fit)
    read = reading.read(
        log,
        output,
        instead="Give it the files that were ingested, some at a time; or begin a new fit at the "
        f"parameters of this one, which forgets old pages: `gecasmo fit MODEL {log} -o FILE "
        f"--start {fit}`.",
    )
    began = time.perf_counter()
    with fit_bar(output, model.name, tol) as bar:
        method = WatchedEM(max_iter=max_iter, tol=tol, show=bar.show if bar else None)
        model.update(
            read.log,
            decay,
            method=method,
            threads=threads,
            progress=False,
            impossible=impossible.value,
        )
    seconds = time.perf_counter() - began
    model.save(place)
    facts = fit_facts(model, read)
    facts |= {"new_sessions": read.log.n_sessions, "decay": decay, "seconds": seconds}
    _tell(
        output,
        place,
        facts,
        f"{model.name}: {facts['new_sessions']:,} new sessions, {facts['sessions']:,} in all; "
        f"{_state(facts)}",
        f"log-likelihood per session {facts['log_likelihood_per_session']:.4f}, of all sessions "
        "so far",
    )
    _end(facts, tol)
