"""Predictions beside clicks: perplexity and click-through rates by rank, and calibration.

Calibration: of the results that are predicted to be clicked so often, how many are? All of them are
drawn from comparisons, models with a log, or data frames.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoError, ModelError, option
from gecasmo.evaluation import calibration as calibration_of
from gecasmo.evaluation import rank_perplexities
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, thinned, tips, wanted_log

Floats = NDArray[np.float64]
Kind = Literal["conditional", "marginal"]

_KNOWS = {
    "conditional": "the clicks above each result are known",
    "marginal": "no click of the page is known",
}
# A difference of two percentages is told in points, which are no percents of anything.
_POINTS = "datum.value == 0 ? '0' : format(100 * datum.value, '+.2~f')"

_ENOUGH = 20  # results; the click rate of fewer is mostly chance
_MAX_WITH_INTERVALS = 4  # models; the bars of more would hide each other
_FAR = 3  # times as far from the click rate as others, and a model leaves the picture


def perplexity_by_rank(
    source: Any, log: ClickLog | None = None, *, kind: Kind = "conditional"
) -> Chart:
    """Perplexity by rank, less that of the click rate by rank.

    Parameters
    ----------
    source : Comparison, data frame or model
        From `gecasmo.evaluation.compare`, its `by_rank`, or a model together with a log. The click
        rate that a model is compared with is that of the log itself.
    log : ClickLog, optional
        For a model.
    kind : "conditional" or "marginal"
        Whether the clicks above a result are known when it is predicted.
    """
    if kind not in _KNOWS:
        raise ModelError(f"kind={kind!r}: choose 'conditional' or 'marginal'.")
    alt = altair()
    whole = perplexity_frame(source, log, kind)
    # The click rate by rank itself is the line at 0.
    whole = whole.filter((pl.col("difference").abs().max().over("model") > 0).fill_null(True))
    names = whole["model"].unique(maintain_order=True).to_list()
    frame, few = _fewer_ranks(whole.filter(pl.col("difference").is_finite()), len(names))
    reach, beyond = _reach(frame)
    ranks = frame["rank"].to_list()
    has_bars = len(names) <= _MAX_WITH_INTERVALS and bool(frame["low"].is_not_null().any())
    beside = [0.16 * (number - (len(names) - 1) / 2) for number in range(len(names))]
    place = pl.col("model").replace_strict(names, beside, return_dtype=pl.Float64)
    drawn = frame.with_columns(place=pl.col("rank") + (place if has_bars else 0.0))
    base = chart_of(drawn).encode(
        x=theme.rank_axis(ranks, field="place"),
        tooltip=tips(
            "model:N",
            "rank:Q",
            **dict.fromkeys(("difference", "low", "high"), "+.4f"),
            perplexity=".4f",
        ),
    )
    scale = alt.Scale(zero=True) if reach is None else alt.Scale(domain=reach, nice=False)
    y = alt.Y("difference:Q", title=f"{kind} perplexity − click rate's", scale=scale)
    layers = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(color=theme.GREY).encode(y="y:Q")
    said = (
        f"Perplexity of a model less that of the click rate by rank; {_KNOWS[kind]}. "
        "Below the line at 0 a model knows more than the rank tells, above it less."
    )
    if has_bars:
        level = 0.9 if isinstance(source, Model) else getattr(source, "setting", None)
        level = level if isinstance(level, float) else getattr(level, "level", None)
        said += " Bars: intervals." if level is None else f" Bars: {level:.0%} intervals."
        bars = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        bars = bars.encode(
            y=alt.Y("low:Q", scale=scale), y2="high:Q", color=theme.series_colours(names)
        )
        layers += bars.mark_rule(strokeWidth=1.5, opacity=0.7, clip=reach is not None)
    if beyond:
        said += f"\nBeyond the picture: {_listed(beyond)}."
    endless = whole.filter(~pl.col("difference").is_finite().fill_null(False))
    if len(endless):
        places = [f"{model} at rank {rank}" for model, rank in endless["model", "rank"].rows()]
        said += f"\nNot drawn, because infinite: {_listed(places)}."
    layers += theme.lines_and_points(base.encode(y=y), names, clip=reach is not None)
    return finished(
        layers.properties(width=theme.WIDTH, height=theme.HEIGHT),
        "Perplexity by rank, beside the click rate by rank",
        said + few,
    )


def _reach(frame: pl.DataFrame) -> tuple[list[float] | None, list[str]]:
    """Where the scale ends if some model is so far off that others would look alike, and those."""
    largest = pl.col("difference").get(pl.col("difference").abs().arg_max())
    far = frame.group_by("model", maintain_order=True).agg(largest)
    size = far["difference"].abs().to_numpy()
    usual = size <= _FAR * np.median(size) if len(size) else np.ones(0, bool)
    if usual.all():
        return None, []
    inside = frame.filter(pl.col("model").is_in(far.filter(usual)["model"].implode()))
    values = np.array(
        [0.0, *inside.select("difference", "low", "high").unpivot()["value"].drop_nulls()]
    )
    room = 0.08 * max(float(np.ptp(values)), 1e-9)
    beyond = [f"{model} (up to {value:+.3g})" for model, value in far.filter(~usual).rows()]
    return [float(values.min()) - room, float(values.max()) + room], beyond


def _listed(texts: list[str], most: int = 4) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _fewer_ranks(frame: pl.DataFrame, n_series: int) -> tuple[pl.DataFrame, str]:
    """Rows of as many ranks as a chart can hold, and words about it if some are left out."""
    ranks = frame.select("rank").unique().sort("rank")
    kept = thinned(ranks, theme.MAX_ROWS // max(n_series, 1))
    if len(kept) == len(ranks):
        return frame, ""
    drawn = frame.filter(pl.col("rank").is_in(kept["rank"].implode()))
    return drawn, f"\n{len(kept):,} of {len(ranks):,} ranks drawn, evenly from first to last."


def ctr_by_rank(source: Any, log: ClickLog | None = None, *, level: float = 0.9) -> Chart:
    """Observed and predicted click-through rate by rank.

    Parameters
    ----------
    source : Comparison, data frame, model or ClickLog
        From `gecasmo.evaluation.compare`, its `ctr_by_rank`, a model together with a log, or a
        log alone; then the bars have intervals.
    log : ClickLog, optional
        For a model.
    level : float
        Of the intervals.
    """
    if isinstance(source, ClickLog):
        return _observed_ctr(source, level)
    alt = altair()
    frame = ctr_frame(source, log)
    names = frame["model"].unique(maintain_order=True).to_list()
    drawn, few = _fewer_ranks(frame, len(names) + 1)
    drawn = drawn.with_columns(difference=pl.col("predicted") - pl.col("observed"))
    observed = drawn.unique("rank", keep="first").sort("rank").select("rank", "observed")
    ranks = observed["rank"].to_list()
    bars = (
        chart_of(observed)
        .mark_bar(color=theme.LIGHT, size=theme.bar_size(ranks))
        .encode(
            x=theme.rank_axis(ranks, None),
            y=alt.Y("observed:Q", title="click-through rate", axis=alt.Axis(format="%")),
            tooltip=tips("rank:Q", observed=(".2%", "observed CTR")),
        )
    )
    rate = alt.Y("predicted:Q", title="click-through rate", axis=alt.Axis(format="%", tickCount=5))
    gap = alt.Y(
        "difference:Q",
        title=["predicted − observed,", "percentage points"],
        axis=alt.Axis(labelExpr=_POINTS, tickCount=5),
        scale=alt.Scale(padding=6),
    )
    lines = chart_of(drawn.with_columns(points=100 * pl.col("difference"))).encode(
        tooltip=tips(
            "model:N",
            "rank:Q",
            predicted=(".2%", "predicted CTR"),
            observed=(".2%", "observed CTR"),
            points=("+.2f", "difference, percentage points"),
        )
    )
    above, below = (
        theme.lines_and_points(lines.encode(x=x, y=y), names, "predicted by")
        for x, y in ((theme.rank_axis(ranks, None), rate), (theme.rank_axis(ranks), gap))
    )
    zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(color=theme.GREY).encode(y="y:Q")
    return finished(
        alt.vconcat(
            (bars + above).properties(width=theme.WIDTH, height=260),
            (zero + below).properties(width=theme.WIDTH, height=120),
            spacing=16,
        ),
        "Click-through rate by rank: observed and predicted",
        "Grey bars: share of the shown results that were clicked. Lines: mean predicted "
        "probability of a click, no click of the page known. Below: predicted minus observed, in "
        "percentage points." + few,
    )


def observed_ctr(log: ClickLog, level: float = 0.9) -> pl.DataFrame:
    """Per rank: results (by weight), click-through rate and its interval."""
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so it has no click-through rates.")
    weight = log.weight[log.page]
    ranks, number = np.unique(log.rank, return_inverse=True)
    results = np.bincount(number, weights=weight)
    clicks = np.bincount(number, weights=weight * log.click)
    used = results > 0
    share = clicks[used] / results[used]
    low, high = share_interval(share, results[used], level)
    return pl.DataFrame(
        {
            "rank": ranks[used].astype(np.int64),
            "results": results[used],
            "observed": share,
            "low": low,
            "high": high,
        }
    )


def _observed_ctr(log: ClickLog, level: float) -> Chart:
    alt = altair()
    whole = observed_ctr(log, level)
    frame, few = _fewer_ranks(whole, 1)
    ranks = frame["rank"].to_list()
    base = chart_of(frame).encode(
        x=theme.rank_axis(ranks),
        tooltip=tips("rank:Q", observed=(".2%", "CTR"), low=".2%", high=".2%", results=",.1~f"),
    )
    bars = base.mark_bar(color="#56B4E9", size=theme.bar_size(ranks, theme.WIDTH + 80)).encode(
        y=alt.Y("observed:Q", title="click-through rate", axis=alt.Axis(format="%"))
    )
    reach = base.mark_rule(color=theme.BLACK, strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    layers = bars + reach
    if len(ranks) <= 20:
        layers += base.mark_text(dy=-8, fontSize=12).encode(
            y="high:Q", text=alt.Text("observed:Q", format=".1%")
        )
    total = float((whole["observed"] * whole["results"]).sum())
    shown = float(whole["results"].sum())
    return finished(
        layers.properties(width=theme.WIDTH + 80, height=theme.HEIGHT),
        "Click-through rate by rank",
        f"{log.n_sessions:,} pages, {shown:,.0f} shown results, {total / shown:.2%} of them "
        f"clicked. Thin bars: {level:.0%} intervals.{few}",
    )


def calibration(source: Any, log: ClickLog | None = None, *, level: float = 0.9) -> Chart:
    """Observed click rate against predicted probability, with counts.

    Parameters
    ----------
    source : Comparison, data frame or model
        From `gecasmo.evaluation.compare`, its `calibration`, or a model together with a log.
    log : ClickLog, optional
        For a model.
    level : float
        Of the intervals, which take results as independent of each other.
    """
    alt = altair()
    frame = calibration_frame(source, log)
    names = frame["model"].unique(maintain_order=True).to_list()
    low, high = share_interval(frame["observed"], frame["results"], level)
    frame = frame.select("model", "predicted", "observed", "results").with_columns(
        low=pl.Series(low), high=pl.Series(high)
    )
    enough = frame.filter(pl.col("results") >= _ENOUGH)
    if enough.is_empty():
        enough = frame
    told = len(names) <= _MAX_WITH_INTERVALS
    # Whole bars: one that is cut off at the edge would look like a narrow interval.
    end = theme.share_end([*frame["predicted"], *enough["high" if told else "observed"]])
    unit = alt.Scale(domain=[0, end], nice=False)
    said = (
        "On the dashed line, predictions come true. They are made with no click of the page known."
    )
    if told:
        said += f" Thin bars: {level:.0%} intervals."
    said += " Below: how many results each point stands for, on a log scale."
    if len(enough) < len(frame):
        said += f" Above without points of fewer than {_ENOUGH} results."
    return finished(
        alt.vconcat(_rates(enough, names, unit, told), _counts(frame, names, unit), spacing=14),
        "Calibration: predicted and observed clicks",
        said,
    )


def _base(frame: pl.DataFrame, unit: Any, title: str | None) -> Chart:
    alt = altair()
    return chart_of(frame).encode(
        x=alt.X("predicted:Q", scale=unit, title=title, axis=alt.Axis(format="%", tickCount=6)),
        tooltip=tips(
            "model:N",
            **dict.fromkeys(("predicted", "observed", "low", "high"), ".2%"),
            results=",.1~f",
        ),
    )


def _rates(frame: pl.DataFrame, names: list[str], unit: Any, with_intervals: bool) -> Chart:
    alt = altair()
    y = alt.Y(
        "observed:Q",
        scale=unit,
        title="observed click rate",
        axis=alt.Axis(format="%", tickCount=6),
    )
    base = _base(frame, unit, None)
    layers = theme.line_between((0.0, 0.0), (unit.domain[1], unit.domain[1]))
    if with_intervals:
        bars = base.encode(
            y=alt.Y("low:Q", scale=unit), y2="high:Q", color=theme.series_colours(names)
        )
        layers += bars.mark_rule(strokeWidth=1.2, opacity=0.6)
    layers += theme.lines_and_points(base.encode(y=y), names)
    return layers.properties(width=theme.WIDTH - 40, height=400)


def _counts(frame: pl.DataFrame, names: list[str], unit: Any) -> Chart:
    alt = altair()
    base = _base(frame, unit, "predicted probability of a click").encode(
        y=alt.Y(
            "results:Q",
            title="results",
            scale=alt.Scale(type="log"),
            axis=alt.Axis(format="~s", values=[10**power for power in range(13)]),
        )
    )
    return theme.lines_and_points(base, names, size=45).properties(
        width=theme.WIDTH - 40, height=100
    )


def perplexity_frame(source: Any, log: ClickLog | None, kind: Kind) -> pl.DataFrame:
    """Columns model, rank, perplexity, and its difference to the click rate's with low and high."""
    columns = {"perplexity": kind, **{n: f"{kind}_{n}" for n in ("difference", "low", "high")}}
    if isinstance(source, Model):
        found = rank_perplexities(source, wanted_log(source, log))
        frame = found.with_columns(model=pl.lit(source.name))
    else:
        frame = _frame_of(source, "by_rank", ("model", "rank", *columns.values()))
    return frame.select("model", "rank", **{new: pl.col(old) for new, old in columns.items()})


def ctr_frame(source: Any, log: ClickLog | None) -> pl.DataFrame:
    """Columns model, rank, observed and predicted."""
    if not isinstance(source, Model):
        return _frame_of(source, "ctr_by_rank", ("model", "rank", "observed", "predicted"))
    pages = wanted_log(source, log)
    weight = pages.weight[pages.page]
    ranks, number = np.unique(pages.rank, return_inverse=True)
    results = np.bincount(number, weights=weight)
    clicks = np.bincount(number, weights=weight * pages.click)
    expected = np.bincount(number, weights=weight * source.predict_clicks(pages))
    used = results > 0
    return pl.DataFrame(
        {
            "model": [source.name] * int(used.sum()),
            "rank": ranks[used].astype(np.int64),
            "observed": (clicks[used] / results[used]),
            "predicted": (expected[used] / results[used]),
        }
    )


def calibration_frame(source: Any, log: ClickLog | None) -> pl.DataFrame:
    """Columns model, results, predicted and observed, a row per bin of predictions."""
    columns = ("model", "results", "predicted", "observed")
    if not isinstance(source, Model):
        return _frame_of(source, "calibration", columns)
    pages = wanted_log(source, log)
    predicted = source.predict_clicks(pages)
    bins = calibration_of(pages.click, predicted, pages.weight[pages.page]).bins
    return bins.with_columns(model=pl.lit(source.name)).select(columns)


def _frame_of(source: Any, attribute: str, columns: tuple[str, ...]) -> pl.DataFrame:
    frame = source if isinstance(source, pl.DataFrame) else getattr(source, attribute, None)
    if not isinstance(frame, pl.DataFrame):
        raise GecasmoError(
            f"A comparison is wanted (gecasmo.evaluation.compare makes one), a model with a log, "
            f"or a Polars frame with {', '.join(columns)}; not {type(source).__name__}."
        )
    lost = [name for name in columns if name not in frame.columns]
    if lost:
        raise GecasmoError(
            f"The frame lacks {', '.join(lost)}; it has: {', '.join(frame.columns)}."
        )
    return frame


def share_interval(share: Any, trials: Any, level: float = 0.9) -> tuple[Floats, Floats]:
    """Wilson's interval of a share that was seen in so many trials."""
    if not 0 < level < 1:
        raise GecasmoError(f"{option('level', level)}: an interval's level lies between 0 and 1.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, n = np.asarray(share, np.float64), np.asarray(trials, np.float64)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low: Floats = np.clip(middle - reach, 0.0, 1.0)
    high: Floats = np.clip(middle + reach, 0.0, 1.0)
    return low, high
