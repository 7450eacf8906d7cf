"""What happened behind the page: posteriors, most likely and random stories, simulation.

Simulated users also go over the pages of a stored log, chunk by chunk into another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import Automaton
from gecasmo.encoding.observations import on_page
from gecasmo.errors import ClickLogError, ModelError, either
from gecasmo.logs import ClickLog
from gecasmo.logs.formats.table import kind_of_name
from gecasmo.logs.notes import Note
from gecasmo.logs.views import VIEWS, ViewedLog, as_view
from gecasmo.logs.views.view import gathering, tell_gathered
from gecasmo.model.click_sets import require_foretelling
from gecasmo.model.foretold import foretold_log
from gecasmo.model.frame_files import write_frames
from gecasmo.model.log_parts import (
    Partitioned,
    all_pieces,
    part_view,
    partitioned_by,
    require_parts,
    suited,
)
from gecasmo.model.page_run import Filtered, PageRun, result_frame

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
    automaton = run.structure.full.body
    browsing = {lit.parameter for edge in automaton.edges for lit in edge.literals}
    browsing -= dict(automaton.observes).keys()  # nothing is flipped there
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


def story_frame(model: Model, page: ClickLog) -> pl.DataFrame:
    """One row a result from the top: click, what was expected, and what lay behind it."""
    behind = model.posterior(page)
    kept = [c for c in behind.columns if c == "reached" or c.endswith("_heads")]
    return (
        pl.DataFrame(
            {
                "rank": page.rank,
                "doc": ids_as_text(page.column("doc")),
                "click": page.click,
                "expected": model.predict_clicks(page),
                "expected_given_above": model.predict_conditional_clicks(page),
            }
        )
        .with_columns(behind.select(kept))
        .sort("rank")
    )


def ids_as_text(ids: pl.Series) -> pl.Series:
    """Ids as texts; those of several columns with commas between them."""
    if isinstance(ids.dtype, pl.Struct):
        parts = ids.struct.unnest()
        return parts.select(pl.concat_str(pl.all().cast(pl.String), separator=",")).to_series()
    return ids.cast(pl.String)


def decoded_frame(model: Model, log: ClickLog) -> pl.DataFrame:
    """The most likely story of every page."""
    Filtered(model, log, "raise")
    run = PageRun(model, log, "decode")
    edge = np.zeros(run.encoded.n_results, np.int64)
    start_edge = np.zeros(run.encoded.n_pages, np.int64)
    run.run(edge, start_edge)
    return _told(run, log, run.results(edge, None), run.sessions(start_edge))


def sampled_frame(model: Model, log: ClickLog, seed: int) -> pl.DataFrame:
    """A random story of every page, given what it shows."""
    Filtered(model, log, "raise")
    run = PageRun(model, log, "stories", merge=False)
    edge, start_edge = _draw(run, seed, n_page_uniforms=2)
    return _told(run, log, run.results(edge, None), run.sessions(start_edge))


def simulate(model: Model, log: ClickLog, seed: int, truth: bool) -> Any:
    """New signals on the pages of a log; whatever was clicked there plays no part."""
    view = as_view(model.view)
    if view.is_sequential and not isinstance(log, ViewedLog):
        return _simulate_walks(model, log, seed, truth)
    if model.page_readers:
        clicked = foretold_log(model, log, seed)
        # What was hidden, given the clicks, is drawn as it is for any log.
        return (clicked, sampled_frame(model, clicked, _seed(seed))) if truth else clicked
    automaton = model.structure.full.body
    none = np.zeros(log.n_results, bool)
    blank = log.with_signals(dict.fromkeys(automaton.signals, none))
    run = PageRun(model, blank, "sample", merge=False)
    edge, start_edge = _draw(run, seed, n_page_uniforms=1)
    edge, start_edge = run.results(edge, None), run.sessions(start_edge)
    signals = {
        signal: np.array([signal in e.symbol for e in automaton.edges], bool)[edge]
        for signal in automaton.signals
    }
    for signal in automaton.page_signals:  # of a page, so at all of its results
        signals[signal] = on_page(log, signals[signal])
    simulated = log.with_signals(signals)
    numbers = _numbers(model, automaton, edge, log, seed)
    if numbers:
        simulated = simulated.with_numbers(numbers)
    return (simulated, _told(run, simulated, edge, start_edge)) if truth else simulated


def replicated_clicks(
    model: Model, log: ClickLog, draws: Iterable[Mapping[str, Any]], seed: int
) -> Iterator[NDArray[np.bool_]]:
    """Simulated clicks on each result of a log, once for each draw of the states of all forms."""
    if as_view(model.view).is_sequential and not isinstance(log, ViewedLog):
        twin = model.copy()
        for turn, states in enumerate(draws):
            twin.states_ = dict(states)
            yield _simulate_walks(twin, log, _seed(seed, turn), False).click
        return
    if model.page_readers:
        twin = model.copy()
        for turn, states in enumerate(draws):
            twin.states_ = dict(states)
            yield foretold_log(twin, log, _seed(seed, turn)).click
        return
    automaton = model.structure.full.body
    none = np.zeros(log.n_results, bool)
    blank = log.with_signals(dict.fromkeys(automaton.signals, none))
    run = PageRun(model, blank, "sample", merge=False)
    is_click = np.array(["click" in edge.symbol for edge in automaton.edges], bool)
    for turn, states in enumerate(draws):
        run.change(states)
        edge, _ = _draw(run, _seed(seed, turn), n_page_uniforms=1)
        yield is_click[run.results(edge, None)]


def _numbers(
    model: Model, automaton: Automaton, edge: NDArray[np.int64], log: ClickLog, seed: int
) -> dict[str, NDArray[np.float64]]:
    """What is seen of simulated users beside signals, by column; NaN where nothing is."""
    generator = np.random.default_rng([seed, _STREAM, 1])
    found: dict[str, NDArray[np.float64]] = {}
    for column in automaton.observed_columns():
        share, values = generator.random(len(edge)), np.full(len(edge), np.nan)
        for coin, name in automaton.observes:
            if name == column:
                takes = [any(lit.parameter == coin for lit in e.literals) for e in automaton.edges]
                drawn = np.array(takes, bool)[edge]
                form: Any = model.forms[coin]
                groups = pl.DataFrame([log.column(key) for key in form.by])
                groups = groups.filter(pl.Series(drawn)) if form.by else groups
                state = model.states()[coin]
                values[drawn] = form.drawn_values(state, coin, share[drawn], groups)
        found[column] = values
    return found


def _simulate_walks(model: Model, log: ClickLog, seed: int, truth: bool) -> ClickLog:
    """Click after click: each walk begins where the one before ended."""
    view = as_view(model.view)
    require_foretelling(model)
    if truth:
        raise ClickLogError(
            f"The hidden events of each walk are not available for the view '{view.name}': "
            f"simulate without "
            "truth=True."
        )
    if model.structure.traced.signals != ("click",) or model.structure.traced.observes:
        raise ModelError(
            f"{model.name} has other signals than clicks, which walks do not simulate."
        )
    model._both_structures()
    twin = model.copy()
    twin.view = replace(view, extent="open")  # type: ignore[call-arg]
    edges = model.structure.full.body.edges
    is_click = np.array([bool(edge.symbol) for edge in edges], bool)
    order = np.zeros(log.n_results, np.int64)
    active = np.ones(log.n_sessions, bool)
    turn = 0
    while active.any():
        turn += 1
        rows = np.flatnonzero(active[log.page])
        pages = _ordered(log.take(active), order[rows])
        viewed = twin.viewed(pages)
        assert isinstance(viewed, ViewedLog)
        if not viewed.n_results:
            break
        run = PageRun(twin, viewed, "sample", merge=False)
        edge, _ = _draw(run, _seed(seed, turn), n_page_uniforms=1)
        clicked = np.flatnonzero(is_click[run.results(edge)])
        # A walk ends at its first click.
        _, first = np.unique(viewed.page[clicked], return_index=True)
        order[rows[viewed.rows[clicked[first]]]] = turn
        active = np.zeros(log.n_sessions, bool)
        active[log.page[order == turn]] = True
    return _ordered(log, order)


def _ordered(log: ClickLog, order: NDArray[np.int64]) -> ClickLog:
    """The same pages with clicks in this order, 0 for none."""
    turns = pl.Series("click_order", order).set(pl.Series(order == 0), None)
    clicked = log.with_signals({"click": order > 0})
    frame = clicked.to_frame().select(clicked.columns).drop("click_time", strict=False)
    return ClickLog(
        frame.with_columns(turns),
        clicked._known_page,
        log.sessions,
        log.weight,
        order=clicked._known_order,
        starts=clicked._known_starts,
        notes=log.notes,
    )


def without_clicks(model: Model, log: ClickLog) -> ClickLog:
    """The pages as a model sees them before anybody has clicked, whatever the log knows of that."""
    if not as_view(model.view).is_sequential or isinstance(log, ViewedLog):
        return log
    return _ordered(log, np.zeros(log.n_results, np.int64))


def _draw(
    run: PageRun, seed: int, n_page_uniforms: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Run a sampling kernel with uniforms that belong to the log's rows, not to its encoding."""
    log, encoded, viewed = run.log, run.encoded, run.viewed
    # People use one seed for their pages and for the clicks on them: the streams must differ.
    generator = np.random.default_rng([seed, _STREAM])
    in_order = generator.random(log.n_results)
    by_session = generator.random((n_page_uniforms, log.n_sessions))
    if isinstance(viewed, ViewedLog) and viewed is not log:
        in_order, by_session = in_order[viewed.rows], by_session[:, viewed.walks.first_session]
    uniform = np.empty(encoded.n_results)
    uniform[encoded.result_places()] = in_order
    pages = np.empty((n_page_uniforms, encoded.n_pages))
    pages[:, encoded.page_of_session] = by_session
    edge = np.zeros(encoded.n_results, np.int64)
    start_edge = np.zeros(encoded.n_pages, np.int64)
    run.run(uniform, *map(np.ascontiguousarray, pages), edge, start_edge)
    return edge, start_edge


def _told(
    run: PageRun, log: ClickLog, edge: NDArray[np.int64], start_edge: NDArray[np.int64]
) -> pl.DataFrame:
    """Edges as columns: `reached`, and per coin how it fell ("heads", "heads tails", null)."""
    model, automaton = run.model, run.structure.full.body
    left = np.array([e.is_away or e.source == automaton.gone for e in automaton.edges], bool)
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
        if coin in dict(automaton.observes):
            continue
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


# Results that are simulated at a time.
_AT_A_TIME = 1_000_000
_ROLES = ("session", "query", "doc", "rank", "click")


class Made(NamedTuple):
    """How much was simulated."""

    sessions: int
    results: int
    clicks: int


def simulate_stored(
    model: Model,
    log: Any,
    path: Any,
    seed: int,
    truth: bool = False,
    overwrite: bool = False,
) -> Any:
    """New clicks on the pages of a stored log, as a stored log at `path`."""
    from gecasmo.logs.store.ingest import ingest

    if truth:
        raise ClickLogError(
            "What was hidden on the pages of a stored log would fill memory. Ask partition by "
            "partition: model.simulate(log.partition(0), truth=True)."
        )
    if path is None:
        raise ClickLogError(
            "Clicks on a stored log may not fit into memory: say where to store them, such as "
            'simulate(log, path="simulated.gclog").'
        )
    if kind_of_name(Path(path).name) is not None:
        raise ClickLogError(
            f"{path}: clicks on a stored log become a stored log, which is a folder; name it such "
            "as simulated.gclog. (`gecasmo simulate` writes tables of any size.)"
        )
    if Path(path).expanduser().resolve() == Path(log.path).resolve():
        raise ClickLogError(f"{path} is the log whose pages are to be simulated; name another.")
    _check_counts(log)
    made = simulated_logs(model, log, seed)
    first = next(made, None)
    if first is None:
        raise ClickLogError("There is nothing to simulate on: the log has no pages.")
    is_by_walk = partitioned_by(log) not in ("query", "session")
    return ingest(
        chain([first], made),
        path,
        keep=[name for name in first.columns if name not in _ROLES],
        view=[view() for view in VIEWS.values() if view.spans_pages and is_by_walk],
        partitions=log.n_partitions,
        overwrite=overwrite,
    )


def simulate_table(model: Model, log: Any, path: Path, kind: str, seed: int) -> Made:
    """New clicks on the pages of a stored log, as a table of any size; sessions are numbered."""
    _check_counts(log)
    has_weights = _keeps_weights(log)
    sums = np.zeros(3, np.int64)

    def frames() -> Iterator[pl.DataFrame]:
        for clicked in simulated_logs(model, log, seed):
            number = pl.Series("session", clicked.page.astype(np.int64) + sums[0])
            frame = clicked.to_frame().select(clicked.columns).with_columns(number)
            if has_weights:
                frame = frame.with_columns(weight=pl.Series(clicked.weight[clicked.page]))
            sums[:] += (clicked.n_sessions, clicked.n_results, int(clicked.click.sum()))
            yield frame

    write_frames(frames(), path, kind)
    return Made(*map(int, sums))


def _check_counts(log: Any) -> None:
    """Refuse pages that stand for nobody knows how many."""
    if getattr(log, "is_folded", False) and not log.weights_are_counts:
        raise ClickLogError(
            f"{log.path} is folded and has weights of its own, so nobody knows how often each page "
            "occurred, and how many users to simulate on it. Ingest it with "
            f"{either('fold=False', '--no-fold')}."
        )


def _keeps_weights(log: Any) -> bool:
    """Whether simulated pages of a stored log may have other weights than 1."""
    if "weight" in log.source_columns or log.total_weight != log.n_sessions:
        return True
    if log.source_columns:
        return False
    # It was made of logs, whose weights may add up to the number of pages by chance.
    return any(_sessions(pages, log.is_folded)[1] for _, pages in all_pieces(log))


def simulated_logs(model: Model, log: Partitioned, seed: int) -> Iterator[ClickLog]:
    """New clicks on the pages of a stored log, some pages at a time.

    A page that stands for several equal ones is shown so many times, since its users click each in
    their own way; with weights that are no whole numbers, it is shown once and keeps its weight.
    """
    require_parts(model, log, is_blank=True)
    model, by, last, turn = suited(model, log), partitioned_by(log), -1, 0
    odd: dict[str, list[Note]] = {}
    for number, pages in all_pieces(log):
        if number != last:
            view, last, turn = part_view(model, number, log.n_partitions), number, 0
        for chunk in _chunks(pages, bool(getattr(log, "is_folded", True)), by):
            with gathering(odd):
                clicked = simulate(view, chunk, _seed(seed, number, turn), truth=False)
            yield clicked
            turn += 1
        del pages  # before the next one is read
    tell_gathered(odd)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def unfolded(log: ClickLog) -> ClickLog:
    """Each page as often as its weight says, if all weights are whole numbers."""
    sessions, has_weights = _sessions(log, True)
    return repeated(log, sessions, has_weights)


def shown_pages(log: ClickLog, most: int) -> ClickLog:
    """Pages that are stored once as often as they were shown, but `most` of them at most.

    Queries are whole, unless the first one alone has more.
    """
    if not log.is_folded:
        return log
    n_shown = np.cumsum(log.weight)
    last = int(np.searchsorted(n_shown, most, side="right"))
    if last < log.n_sessions:
        kept = np.arange(log.n_sessions) < last
        if log.has_query:
            queries = log.session_column("query")
            whole = kept & (queries != queries[last]).to_numpy()
            kept = whole if whole.any() else kept
        if not kept.any():  # the first page alone was shown more often
            return repeated(log, np.zeros(most, np.int64))
        log = log.take(kept)
    return unfolded(log)


def _sessions(log: ClickLog, is_folded: bool) -> tuple[NDArray[np.int64], bool]:
    """Each session as often as it occurred, and whether there are other weights to be kept."""
    repeats = np.ones(log.n_sessions, np.int64)
    if is_folded and np.all(log.weight == np.round(log.weight)):
        repeats = log.weight.astype(np.int64)
    return np.repeat(np.arange(log.n_sessions), repeats), not np.array_equal(repeats, log.weight)


def _chunks(log: ClickLog, is_folded: bool, by: str) -> Iterator[ClickLog]:
    """A partition in pieces, each page as often as it occurred; walks over pages are whole."""
    sessions, has_weights = _sessions(log, is_folded)
    ends = np.cumsum(log.lengths[sessions])
    borders = np.searchsorted(ends, np.arange(_AT_A_TIME, ends[-1:].sum(), _AT_A_TIME))
    if by not in ("query", "session"):
        walk = log.session_column(by).rle_id().to_numpy()
        borders = np.unique(np.searchsorted(walk, walk[borders]))
    for chosen in np.split(sessions, borders):
        if len(chosen):
            yield repeated(log, chosen, has_weights)


def repeated(log: ClickLog, sessions: NDArray[np.int64], has_weights: bool = False) -> ClickLog:
    """A log of these sessions of another, as often as they are named, numbered from 0."""
    lengths = log.lengths[sessions]
    page = np.repeat(np.arange(len(sessions)), lengths)
    within = np.arange(len(page)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = log.order[np.repeat(log.starts[:-1][sessions], lengths) + within]
    frame = log.to_frame().select(log.columns)[pl.Series(rows)]
    numbers = pl.Series("session", np.arange(len(sessions)))
    return ClickLog(
        frame.with_columns(numbers.gather(pl.Series(page)).alias("session")),
        page.astype(np.uint32),
        numbers,
        log.weight[sessions] if has_weights else np.ones(len(sessions)),
    )
