"""What happened behind the page: posteriors, most likely and random stories, simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import Automaton
from gecasmo.logs import ClickLog
from gecasmo.model.impossible import Filtered
from gecasmo.model.running import PageRun, result_frame

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_STREAM = 0x636C6963


def posterior_frame(model: Model, log: ClickLog) -> pl.DataFrame:
    """Per result: reached, and flipped and heads of every coin."""
    Filtered(model, log, "raise")
    run = PageRun(model, log, "smooth")
    n_results, n_pages, n_coins = run.encoded.n_results, run.encoded.n_pages, len(model.forms)
    reached = np.zeros(n_results)
    flipped, heads = np.zeros((n_results, n_coins)), np.zeros((n_results, n_coins))
    start_flipped, start_heads = np.zeros((n_pages, n_coins)), np.zeros((n_pages, n_coins))
    run.run(reached, flipped, heads, start_flipped, start_heads)
    columns = [pl.Series("reached", run.results(reached))]
    automaton = model.structure.full.body
    browsing = {lit.parameter for edge in automaton.edges for lit in edge.literals}
    for number, coin in enumerate(model.forms):
        if coin in browsing:
            columns.append(pl.Series(f"{coin}_flipped", run.results(flipped[:, number])))
            columns.append(pl.Series(f"{coin}_heads", run.results(heads[:, number])))
    for number, coin in enumerate(model.forms):
        if coin in automaton.start_parameters():
            for name, values in (("flipped", start_flipped), ("heads", start_heads)):
                by_page = run.sessions(values[:, number])[log.page]
                columns.append(pl.Series(f"start_{coin}_{name}", by_page))
    return result_frame(log).with_columns(columns)


def decoded_frame(model: Model, log: ClickLog) -> pl.DataFrame:
    """The most likely story of every page."""
    Filtered(model, log, "raise")
    run = PageRun(model, log, "decode")
    edge = np.zeros(run.encoded.n_results, np.int64)
    start_edge = np.zeros(run.encoded.n_pages, np.int64)
    run.run(edge, start_edge)
    return _told(model, log, run.results(edge), run.sessions(start_edge))


def sampled_frame(model: Model, log: ClickLog, seed: int) -> pl.DataFrame:
    """A random story of every page, given what it shows."""
    Filtered(model, log, "raise")
    run = PageRun(model, log, "stories", merge=False)
    edge, start_edge = _draw(run, seed, n_page_uniforms=2)
    return _told(model, log, run.results(edge), run.sessions(start_edge))


def simulate(model: Model, log: ClickLog, seed: int, truth: bool) -> Any:
    """New signals on the pages of a log; whatever was clicked there plays no part."""
    automaton = model.structure.full.body
    none = np.zeros(log.n_results, bool)
    blank = log.with_signals(dict.fromkeys(automaton.signals, none))
    run = PageRun(model, blank, "sample", merge=False)
    edge, start_edge = _draw(run, seed, n_page_uniforms=1)
    edge, start_edge = run.results(edge), run.sessions(start_edge)
    signals = {
        signal: np.array([signal in e.symbol for e in automaton.edges], bool)[edge]
        for signal in automaton.signals
    }
    simulated = log.with_signals(signals)
    return (simulated, _told(model, simulated, edge, start_edge)) if truth else simulated


def _draw(
    run: PageRun, seed: int, n_page_uniforms: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Run a sampling kernel with uniforms that belong to the log's rows, not to its encoding."""
    log, encoded = run.log, run.encoded
    # People use one seed for their pages and for the clicks on them: the streams must differ.
    generator = np.random.default_rng([seed, _STREAM])
    in_order = generator.random(log.n_results)
    by_session = generator.random((n_page_uniforms, log.n_sessions))
    uniform = np.empty(encoded.n_results)
    uniform[encoded.result_places()] = in_order
    pages = np.empty((n_page_uniforms, encoded.n_pages))
    pages[:, encoded.page_of_session] = by_session
    edge = np.zeros(encoded.n_results, np.int64)
    start_edge = np.zeros(encoded.n_pages, np.int64)
    run.run(uniform, *map(np.ascontiguousarray, pages), edge, start_edge)
    return edge, start_edge


def _told(
    model: Model, log: ClickLog, edge: NDArray[np.int64], start_edge: NDArray[np.int64]
) -> pl.DataFrame:
    """Edges as columns: `reached`, and per coin how it fell ("heads", "heads tails", null)."""
    automaton = model.structure.full.body
    left = np.array([e.source == automaton.gone for e in automaton.edges], bool)
    columns = [pl.Series("reached", ~left[edge])]
    columns += _falls(model, automaton, edge, "")
    if automaton.start_parameters():
        columns += _falls(model, automaton, start_edge[log.page], "start_")
    return result_frame(log).with_columns(columns)


def _falls(
    model: Model, automaton: Automaton, edge: NDArray[np.int64], prefix: str
) -> list[pl.Series]:
    edges = automaton.initial if prefix else automaton.edges
    columns = []
    for coin in model.forms:
        words = [
            " ".join(
                "heads" if lit.heads else "tails" for lit in e.literals if lit.parameter == coin
            )
            for e in edges
        ]
        if any(words):
            listed = pl.Series(f"{prefix}{coin}", [word or None for word in words], dtype=pl.String)
            columns.append(listed.gather(pl.Series(edge)))
    return columns
