"""Numbers about coins and logs: estimates with their uncertainty, likelihoods, click probabilities,
expected counts.

Click probabilities can also be written to files, a partition at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows, Wanted
from gecasmo.encoding.columns import coded
from gecasmo.encoding.features import looked_up, usable
from gecasmo.errors import GecasmoError, ModelError, option
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import Coin, Coins
from gecasmo.files import put_in_place, scratch_folder
from gecasmo.forms import FormState
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.views import ViewedLog, as_view
from gecasmo.model.click_sets import click_sets, require_foretelling
from gecasmo.model.foretold import foretold_clicks
from gecasmo.model.frame_files import is_of_pieces, table_kind, write_frames, write_pieces
from gecasmo.model.log_parts import (
    Answer,
    AskedElsewhere,
    Partitioned,
    as_log,
    over_parts,
    partitioned_by,
    routed,
    whole_view,
)
from gecasmo.model.page_run import (
    Filtered,
    PageRun,
    Tally,
    brought_back,
    counts_of_source,
    n_source_results,
    refuse,
    result_frame,
    result_rows,
)
from gecasmo.model.stories import without_clicks
from gecasmo.report import listed, percent, wrapped

if TYPE_CHECKING:
    from gecasmo.model.base import Augmentation, Impossible, Model

Floats = NDArray[np.float64]


def parameter_frames(model: Model) -> dict[str, pl.DataFrame]:
    """Per coin its rows with probability, heads and tails."""
    model = whole_view(model)
    states = model.states()
    counts = {} if model.report_ is None else model.report_.counts
    frames = {}
    for coin, form in model.forms.items():
        frame = form.to_frame(states[coin])
        if "probability" in frame.columns:
            sides = counts.get(coin, np.zeros((2, len(frame))))
            frame = frame.with_columns(pl.Series("heads", sides[1]), pl.Series("tails", sides[0]))
        frames[coin] = frame
    return frames


def result_columns(model: Model, coin: str, log: ClickLog) -> pl.DataFrame:
    """The columns of a log, with those keys of a coin that are made from the pages."""
    made = [
        key for key in model.keys.get(coin, ()) if key in (*HISTORY_KEYS, "page_length", "result")
    ]
    parts = [coded(log, key, coin) for key in made]
    columns = [
        part.values.gather(pl.Series(part.codes)).alias(key)
        for key, part in zip(made, parts, strict=True)
    ]
    return log.to_frame().with_columns(columns)


def result_probability(model: Model, coin: str, log: ClickLog) -> Floats:
    """The probability of a coin at each result of a log."""
    if coin in model.page_readers:  # which is another one wherever a result is shown
        encoded = model.encode(log, "filter")
        number = list(model.forms).index(coin)
        states = model.states(whole=False)
        own = model.forms[coin].probabilities(states[coin], encoded.rows[number], coin)
        used = result_rows(encoded, encoded.plan.coins[number])[encoded.result_places()]
        told: Floats = own[used]
        return told
    viewed = model.viewed(log)
    found = coin_probability(model, coin, result_columns(model, coin, viewed))
    back: Floats = (
        viewed.back(found) if isinstance(viewed, ViewedLog) and viewed is not log else found
    )
    return back


class CoinOnPages:
    """The probability of a coin at each result of a log, told again for other states of forms."""

    def __init__(self, model: Model, coin: str, log: ClickLog) -> None:
        self.model, self.coin, self.log = model, coin, log
        self.believed = result_probability(model, coin, log)
        self._places: NDArray[np.int64] | None = None
        if coin not in model.page_readers:
            viewed = model.viewed(log)
            rows = asked_rows(model, coin, result_columns(model, coin, viewed))
            places = model.forms[coin].places(model.states()[coin], rows)
            if isinstance(viewed, ViewedLog) and viewed is not log and places is not None:
                places = viewed.back(places)
            self._places = places

    def under(self, states: Mapping[str, FormState]) -> Floats:
        """The same under other states, of tables with the same rows."""
        if self._places is None:
            return result_probability(with_states(self.model, states), self.coin, self.log)
        seen = self._places >= 0
        known = states[self.coin].probability[self._places[seen]]
        if seen.all():
            return np.asarray(known)
        found = self.believed.copy()
        found[seen] = known
        return found


class ClicksOnPages:
    """P(click) of each result with no click known, told again for other states of forms."""

    def __init__(self, model: Model, log: ClickLog) -> None:
        self.model, self.log = model, log
        is_plain = not (as_view(model.view).is_sequential or model.page_readers)
        self._run = PageRun(model, log, "marginal") if is_plain else None

    def under(self, states: Mapping[str, FormState] | None = None) -> Floats:
        """As the model has it, or under other states, of tables with the same rows."""
        if self._run is None:
            model = self.model if states is None else with_states(self.model, states)
            return marginal_array(model, self.log)
        if states is not None:
            self._run.change(states)
        answers = np.zeros(self._run.encoded.n_results)
        self._run.run(answers)
        return np.asarray(np.clip(self._run.results(answers), 0.0, 1.0))


def with_states(model: Model, states: Mapping[str, FormState]) -> Model:
    """A copy of a model with other states of its forms."""
    twin = model.copy()
    twin.states_ = dict(states)
    return twin


def coin_probability(model: Model, coin: str, frame: pl.DataFrame) -> Floats:
    """The probability of a coin for each row of a frame with its keys and features."""
    rows = asked_rows(model, coin, frame)
    return model.forms[coin].probabilities(model.states(whole=False)[coin], rows, coin)


def asked_rows(model: Model, coin: str, frame: pl.DataFrame) -> Rows:
    """The rows of a coin that a frame with its keys and features asks about."""
    if coin not in model.forms:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    form, given = model.forms[coin], model.features_.get(coin)
    columns = form.columns
    state = model.states(whole=False)[coin]
    by_key = not (columns or form.is_same_everywhere(state)) or form.by_declared_key
    keys = tuple(k for k in model.keys[coin] if by_key or k in frame.columns)
    elsewhere = () if given is None else tuple(given.columns)
    needed = (*keys, *(name for name in columns if name not in elsewhere))
    lost = [name for name in dict.fromkeys(needed) if name not in frame.columns]
    if lost:
        raise ModelError(
            f"The frame lacks {', '.join(lost)}, which are in the key of '{coin}'; it has: "
            f"{', '.join(frame.columns)}."
        )
    own = {
        name: usable(frame[name], coin, form.allows_missing, "rows")
        for name in columns
        if name in frame.columns
    }
    key_columns = [own.get(key, frame[key]) for key in keys]
    rows = Rows(keys, key_columns, len(frame))
    attached = {name: column for name, column in own.items() if name not in keys}
    if given is not None:
        absent = tuple(name for name in columns if name not in own)
        by = [key for key in model.keys[coin] if key in elsewhere]
        if absent and not any(key in keys for key in by):
            raise ModelError(
                f"The frame lacks {', '.join(by)}, by which the features of '{coin}' are found; it "
                f"has: {', '.join(frame.columns)}."
            )
        attached |= looked_up(rows, coin, Wanted(absent, form.allows_missing, given))
    return Rows(keys, key_columns, len(frame), attached)


def estimate_frame(
    model: Model, coin: str, rows: pl.DataFrame | None, level: float
) -> pl.DataFrame:
    """Key columns, probability, spread, low, high, trials and what each estimate rests on."""
    if not 0 < level < 1:
        raise ModelError(
            f"{option('level', level)}: the level of an interval lies between 0 and 1."
        )
    states = model.states(whole=False)
    if coin not in states:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    form, state = model.forms[coin], states[coin]
    if form.in_files(state) is not None:
        if rows is None:
            return estimate_frame(whole_view(model), coin, None, level)
        if "query" in rows.columns:
            return routed(model, coin, rows, lambda m, some: estimate_frame(m, coin, some, level))
    if rows is None:
        rows = _rows_of_fit(model, coin)
    keys = [key for key in model.keys[coin] if key in rows.columns]
    asked = asked_rows(model, coin, rows)
    probability = form.probabilities(state, asked, coin)
    counts = None if model.report_ is None else model.report_.counts.get(coin)
    found = form.posterior(state, asked, probability, counts)
    low, high = beta_interval(found.mean, found.spread, level)
    # Of a very lopsided belief both ends may lie on one side of its mean.
    low, high = np.minimum(low, found.mean), np.maximum(high, found.mean)
    numbers = {
        "probability": found.mean,
        "spread": found.spread,
        "low": low,
        "high": high,
        "trials": found.trials,
    }
    columns = [pl.Series(name, values, nan_to_null=True) for name, values in numbers.items()]
    told = pl.Series("rests_on", found.rests_on, dtype=pl.String)
    return pl.DataFrame([*rows.select(keys).get_columns(), *columns, told])


def _rows_of_fit(model: Model, coin: str) -> pl.DataFrame:
    form, state = model.forms[coin], model.states()[coin]
    frame = form.to_frame(state)
    if "density" in frame.columns:
        raise ModelError(
            f"'{coin}' is a density and has no probability: model.parameters[{coin!r}] says how "
            "what it observes is spread."
        )
    if "probability" not in frame.columns:
        raise ModelError(
            f"The form {form!r} of '{coin}' has no list of rows; name the rows to be answered: "
            f"estimates({coin!r}, frame)."
        )
    kept = form.kept_features(state)
    return frame.with_columns(column.alias(name) for name, column in kept.items())


def beta_interval(mean: Any, spread: Any, level: float) -> tuple[Floats, Floats]:
    """The central interval of the Beta distribution with this mean and standard deviation.

    NaN where the deviation is unknown; a deviation of 0 gives the mean itself.
    """
    from scipy.special import betaincinv

    mean, spread = np.asarray(mean, float), np.asarray(spread, float)
    inside = np.clip(mean, 1e-12, 1 - 1e-12)
    ratio = np.clip(spread / np.sqrt(inside * (1 - inside)), 1e-6, 0.999)
    strength = 1 / ratio**2 - 1
    a, b = inside * strength, (1 - inside) * strength
    ends = [betaincinv(a, b, share) for share in ((1 - level) / 2, (1 + level) / 2)]
    low, high = (np.where(spread == 0, mean, end) for end in ends)
    return low, high


def session_log_likelihood(
    model: Model, log: ClickLog | Partitioned, impossible: Impossible
) -> Floats:
    """The log-likelihood of each session that is kept; of a stored log by partition."""
    values: Floats = _end_to_end(_filtered(model, log, impossible, _log_likelihood)[0])
    return values


def mean_log_likelihood(model: Model, log: ClickLog | Partitioned, impossible: Impossible) -> float:
    """The weighted mean over the sessions that are kept."""

    def weighted(view: Model, pages: ClickLog, filtered: Filtered) -> float:
        values = _log_likelihood(view, pages, filtered)
        return float((values * pages.weight[filtered.kept]).sum())

    sums, tally = _filtered(model, log, impossible, weighted)
    tally.require_some(model.name)
    return sum(sums) / tally.weight


def _log_likelihood(model: Model, log: ClickLog, filtered: Filtered) -> Floats:
    return per_session(log, filtered.log_density)[filtered.kept]


def _filtered(
    model: Model,
    log: ClickLog | Partitioned,
    impossible: Impossible,
    answer: Callable[[Model, ClickLog, Filtered], Answer],
) -> tuple[list[Answer], Tally]:
    """What the filter says of all parts, one after the other, and how many sessions it keeps."""

    def ask(view: Model, pages: ClickLog) -> tuple[Answer, Tally]:
        filtered = Filtered(view, pages, impossible, warn=False)
        return answer(view, pages, filtered), filtered.tally

    answers, tally = [], Tally()
    for found, counted in over_parts(model, log, ask):
        answers.append(found)
        tally += counted
    tally.tell(model.name)
    return answers, tally


def _end_to_end(answers: list[Any]) -> Any:
    if len(answers) == 1:
        return answers[0]
    return pl.concat(answers) if isinstance(answers[0], pl.DataFrame) else np.concatenate(answers)


def per_session(log: ClickLog, per_result: Floats) -> Floats:
    """Sums over the results of each session."""
    sums = np.bincount(log.page, weights=per_result, minlength=log.n_sessions)
    return sums.astype(np.float64)


def conditional_clicks(
    model: Model, log: ClickLog | Partitioned, impossible: Impossible, frame: bool
) -> Floats | pl.DataFrame:
    """P(click | signals above)."""
    answer = conditional_frame if frame else _conditional_array
    found: Floats | pl.DataFrame = _end_to_end(_filtered(model, log, impossible, answer)[0])
    return found


def _conditional_array(model: Model, log: ClickLog, filtered: Filtered) -> Floats:
    kept: Floats = filtered.click[filtered.kept[log.page]]
    return kept


def conditional_frame(model: Model, log: ClickLog, filtered: Filtered) -> pl.DataFrame:
    """The click probabilities of the results that are kept, with what they are about."""
    kept = filtered.kept[log.page]
    return _with_unseen(model, log, filtered.click[kept], kept, filtered.encoded)


def marginal_clicks(model: Model, log: ClickLog | Partitioned, frame: bool = False) -> Any:
    """P(click) with no click known."""
    answer = marginal_frame if frame else marginal_array
    return _end_to_end(list(over_parts(model, log, answer)))


def marginal_array(model: Model, log: ClickLog, encoded: EncodedLog | None = None) -> Floats:
    """P(click) of each result of a log in memory; `encoded` as the filter has it may save work."""
    if as_view(model.view).is_sequential and not isinstance(log, ViewedLog):
        return click_sets(model, log).marginal
    if model.page_readers:
        return foretold_clicks(model, log)
    depends_on_clicks = any(key in HISTORY_KEYS for keys in model.keys.values() for key in keys)
    run = PageRun(model, log, "marginal", encoded=None if depends_on_clicks else encoded)
    answers = np.zeros(run.encoded.n_results)
    run.run(answers)
    answer: Floats = np.clip(run.results(answers), 0.0, 1.0)
    return answer


def marginal_frame(model: Model, log: ClickLog) -> pl.DataFrame:
    """P(click) of each result with what it is about."""
    return _with_unseen(model, log, marginal_array(model, log), np.ones(log.n_results, bool))


def unseen_coins(
    model: Model, log: ClickLog, encoded: EncodedLog | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Per coin, which results use a row that was not there when the model was fitted.

    `encoded` as the filter has it saves work.
    """
    states = model.states(whole=False)
    encoded = encoded or model.encode(log, "filter")
    unseen = {}
    for (coin, form), rows, plan in zip(
        model.forms.items(), encoded.rows, encoded.plan.coins, strict=True
    ):
        is_new = ~form.known(states[coin], rows)
        if plan.scope == "global" or not is_new.any():
            unseen[coin] = np.full(log.n_results, bool(is_new.all()) and len(is_new) > 0)
        else:
            used = result_rows(encoded, plan)
            unseen[coin] = brought_back(log, encoded, is_new[used[encoded.result_places()]])
    return unseen


def unseen_weights(
    model: Model, log: ClickLog, encoded: EncodedLog, kept: NDArray[np.bool_]
) -> dict[str, float]:
    """Per coin, how much those of the kept results weigh whose row was never fitted."""
    weight = log.weight[log.page] * kept
    unseen = unseen_coins(model, log, encoded)
    return {coin: float(weight[is_new].sum()) for coin, is_new in unseen.items()}


def unseen_shares(model: Model, log: Any) -> dict[str, float]:
    """Per coin, the share of the results of a log whose row was never fitted, as users meet them
    before they click."""

    def ask(view: Model, pages: ClickLog) -> tuple[float, dict[str, float]]:
        pages = without_clicks(view, pages)
        kept = np.ones(pages.n_results, np.bool_)
        new = unseen_weights(view, pages, view.encode(pages, "filter"), kept)
        return float(pages.weight[pages.page].sum()), new

    total, unseen = 0.0, Counter[str]()
    for weight, new in over_parts(model, log, ask, is_blank=True):
        total += weight
        unseen.update(new)
    return {coin: unseen[coin] / max(total, 1e-300) for coin in model.forms}


def told_unseen(shares: Mapping[str, float]) -> str:
    """Say for which share of the results a model has nothing but priors; empty if for none."""
    coins: dict[str, list[str]] = {}
    for coin, share in shares.items():
        if share > 0:
            coins.setdefault(percent(share), []).append(coin)
    if not coins:
        return ""
    parts = [
        f"{share} of the results have no row of {listed(names)}" for share, names in coins.items()
    ]
    return f"not in the fit: {listed(parts)}; for these the model answers from its prior alone"


def _with_unseen(
    model: Model,
    log: ClickLog,
    answer: Floats,
    kept: NDArray[np.bool_],
    encoded: EncodedLog | None = None,
) -> pl.DataFrame:
    by_coin = unseen_coins(model, log, encoded)
    unseen = pl.DataFrame(
        {coin: np.where(is_new, coin, "").tolist() for coin, is_new in by_coin.items()},
        schema=dict.fromkeys(by_coin, pl.String),
    ).select(pl.concat_list(pl.all()).list.filter(pl.element() != "").alias("unseen"))
    frame = result_frame(log).with_columns(unseen["unseen"]).filter(pl.Series(kept))
    return frame.with_columns(pl.Series("probability", answer))


def expected_counts(
    model: Model, log: ClickLog, augmentation: Augmentation
) -> tuple[list[Rows], Any]:
    """Rows and counts of every coin on a log, at the model's probabilities."""
    states = model.states(whole=False)
    encoded = model.encode(log, "e_step", augmentation)
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), augmentation)
    named = zip(model.forms.items(), encoded.rows, strict=True)
    coins = Coins([Coin(name, form, rows) for (name, form), rows in named])
    by_coin = [states[coin] for coin in model.forms]
    counts = expectation.run(coins.weights(by_coin))
    if counts.n_impossible:
        refuse(model, log, states, None)
    counts.log_likelihood += coins.left_out(by_coin, counts)
    return encoded.rows, counts


def count_frames(
    model: Model, log: ClickLog | Partitioned, augmentation: Augmentation
) -> dict[str, pl.DataFrame]:
    """Expected heads and tails per row of every coin; memory goes by the number of rows."""

    def ask(view: Model, pages: ClickLog) -> dict[str, pl.DataFrame]:
        rows, counts = expected_counts(view, pages, augmentation)
        return {
            coin: pl.DataFrame(
                [
                    *rows[number].frame.get_columns(),
                    pl.Series("heads", counts.heads(number)),
                    pl.Series("tails", counts.tails(number)),
                ]
            )
            for number, coin in enumerate(view.forms)
        }

    total: dict[str, list[pl.DataFrame]] = {}
    for found in over_parts(model, log, ask):
        for coin, frame in found.items():
            kept = total.setdefault(coin, [])
            kept.append(frame)
            is_apart = "query" in frame.columns and partitioned_by(log) == "query"
            if len(kept) > 1 and (not is_apart or _go_on(kept[-2], frame)):
                total[coin] = [*kept[:-2], _summed(kept[-2:])]
    return {coin: pl.concat(frames, how="vertical_relaxed") for coin, frames in total.items()}


def _go_on(before: pl.DataFrame, frame: pl.DataFrame) -> bool:
    """Whether the last query of some pages is the first of the next: of a large partition."""
    return bool(len(before) and len(frame) and before["query"][-1] == frame["query"][0])


def _summed(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Counts of the same rows as one."""
    together = pl.concat(frames, how="vertical_relaxed")
    keys = [name for name in together.columns if name not in ("heads", "tails")]
    sums = [pl.col("heads").sum(), pl.col("tails").sum()]
    return together.group_by(keys, maintain_order=True).agg(sums) if keys else together.select(sums)


Kind = Literal["conditional", "marginal"]
KINDS = ("conditional", "marginal")


@dataclass(frozen=True)
class Predicted:
    """What became of predictions that were written: the file or folder, and its rows.

    `n_results` counts results of the source, and so does `n_left_out` its sessions. Where equal
    pages are stored once there are fewer rows, each with the weight of its page. `unseen` says per
    coin which share of the results has a row that was never fitted.
    """

    path: Path
    n_results: int
    n_left_out: int = 0  # sessions
    n_rows: int = 0
    unseen: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.path}: click probabilities of {self.n_results:,} results"
        if self.n_rows != self.n_results:
            text += f", in {self.n_rows:,} rows with weights, since equal pages are stored once"
        if self.n_left_out:
            text += f"; {self.n_left_out:,} impossible sessions left out"
        return "\n".join([text, *wrapped(told_unseen(self.unseen), "  ", "  ")])


def predict_to(
    model: Model, log: Any, path: Any, kind: Kind = "conditional", impossible: Impossible = "raise"
) -> Predicted:
    """See `Model.predict`."""
    if kind not in KINDS:
        raise ModelError(f"kind={kind!r}: choose {' or '.join(map(repr, KINDS))}.")
    if isinstance(log, AskedElsewhere):
        raise ModelError(
            "Predictions on a cluster stay there: gecasmo.spark.predict(model, dataframe).write"
            ".parquet(...)"
        )
    log = as_log(log)
    require_foretelling(model)
    target = Path(path).expanduser()
    check_place(target)
    model.states(whole=False)
    tally, n_results, total, unseen = Tally(), 0, 0.0, Counter[str]()
    may_be_folded = not isinstance(log, ClickLog)  # equal pages may be stored once

    def ask(view: Model, pages: ClickLog) -> pl.DataFrame:
        nonlocal tally, n_results, total
        kept = np.ones(pages.n_sessions, bool)
        if kind == "marginal":
            frame = marginal_frame(view, pages)
        else:
            filtered = Filtered(view, pages, impossible, warn=False)
            tally += filtered.tally
            kept = filtered.kept
            frame = conditional_frame(view, pages, filtered)
        n_results += n_source_results(pages, kept)
        frame = frame.with_columns(weight=pl.Series(pages.weight[pages.page][kept[pages.page]]))
        total += float(frame["weight"].sum())
        new = frame.select("unseen", "weight").explode("unseen").drop_nulls()
        unseen.update(dict(new.group_by("unseen").agg(pl.col("weight").sum()).iter_rows()))
        has_weight = may_be_folded or not np.all(pages.weight == 1)
        return frame if has_weight else frame.drop("weight")

    frames, table = over_parts(model, log, ask), _kind(target)
    n_rows = _write_folder(frames, target) if table is None else write_frames(frames, target, table)
    tally.tell(model.name)
    counts = counts_of_source(log, tally)
    n_left_out = tally.n_sessions - tally.n_kept
    shares = {coin: unseen[coin] / max(total, 1e-300) for coin in model.forms}
    n_results = n_results if counts is None else counts[1]
    return Predicted(target, n_results, n_left_out, n_rows, shares)


def check_place(target: Path) -> None:
    """Refuse a place for predictions where they would not be what the name says, or take the place
    of something else: files replace files, and folders of predictions such folders."""
    is_table = _kind(target) is not None
    if not is_table and target.is_symlink():
        raise GecasmoError(
            f"{target} is a link, and predictions go into a folder of this name: name the folder "
            "that it leads to, or choose another."
        )
    if is_table and target.is_dir():
        raise GecasmoError(f"{target}: that is a folder; name a file, or remove it.")
    if is_table or not target.exists():
        return
    if not target.is_dir():
        raise GecasmoError(
            f"{target} is a file, and predictions go into a folder of this name: let it end in "
            ".parquet or .csv for one file, or choose another."
        )
    if not is_of_pieces(target):
        raise GecasmoError(
            f"{target}: that is a folder with other files than predictions; choose another name."
        )


def _kind(target: Path) -> str | None:
    return table_kind(target, "predictions")


def _write_folder(frames: Iterator[pl.DataFrame], target: Path) -> int:
    """A file for each partition, in a folder that appears when all are there."""
    with scratch_folder(target) as fresh:
        n_rows = write_pieces(frames, fresh, marked=True)
        check_place(target)  # much may have happened since it was checked
        put_in_place(fresh, target)
    return n_rows
