"""How much data there is: pairs by how often they were shown."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.plots.theme import BLUE, HEIGHT, ORANGE, WIDTH, Chart, altair, chart_of, finished

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000, 1_000_000)


def pairs_by_impressions(log: ClickLog) -> Chart:
    """How many pairs of query and document have how much data.

    Bars beside each other: the share of the pairs that were shown so often, and the share of all
    shown results that are theirs. Numbers of pairs stand above the bars.
    """
    alt = altair()
    wide = impression_classes(log)
    n_pairs = int(wide["pairs"].sum())
    shares = "share of pairs" if log.has_query else "share of documents"
    words = {"pairs": shares, "impressions": "share of impressions"}
    long = pl.concat(
        [
            wide.select(
                "shown",
                "pairs",
                "impressions",
                kind=pl.lit(word),
                share=pl.col(column) / max(float(wide[column].sum()), 1.0),
                label=pl.col("pairs").map_elements(lambda n: f"{n:,}", return_dtype=pl.String)
                if column == "pairs"
                else pl.lit(""),
            )
            for column, word in words.items()
        ]
    )
    names = list(words.values())
    base = chart_of(long).encode(
        x=alt.X(
            "shown:N",
            sort=wide["shown"].to_list(),
            title="times shown (impressions)",
            axis=alt.Axis(labelAngle=0),
        ),
        xOffset=alt.XOffset("kind:N", sort=names),
        y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%")),
        tooltip=[
            alt.Tooltip("shown:N", title="times shown"),
            alt.Tooltip("kind:N", title="bar"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("pairs:Q", format=","),
            alt.Tooltip("impressions:Q", format=",.1~f"),
        ],
    )
    bars = base.mark_bar().encode(
        color=alt.Color(
            "kind:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=[BLUE, ORANGE]),
            legend=alt.Legend(orient="top"),
        )
    )
    labels = base.mark_text(dy=-8, fontSize=12).encode(text="label:N")
    pair = "(query, document) pairs" if log.has_query else "documents"
    rare = int(wide.filter(pl.col("least") < 10)["pairs"].sum())
    return finished(
        (bars + labels).properties(width=WIDTH + 80, height=HEIGHT),
        f"How much data there is about {n_pairs:,} {pair}",
        f"{rare:,} of them ({rare / max(n_pairs, 1):.0%}) were shown fewer than 10 times. "
        f"Above the bars: number of {'pairs' if log.has_query else 'documents'}.",
    )


def impression_classes(log: ClickLog) -> pl.DataFrame:
    """Per class of impressions: its name, least impressions, pairs, and all their impressions."""
    pair = ["query", "doc"] if log.has_query else ["doc"]
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so there are no pairs to count.")
    frame = log.to_frame().select(pair).with_columns(weight=pl.Series(log.weight[log.page]))
    per_pair = frame.group_by(pair).agg(pl.col("weight").sum())["weight"].to_numpy()
    per_pair = per_pair[per_pair > 0]
    # A pair of weight 0.4 has less than one impression: it belongs to the first class.
    number = np.maximum(np.searchsorted(_EDGES, per_pair, side="right") - 1, 0)
    n_classes = int(number.max(initial=0)) + 1
    return pl.DataFrame(
        {
            "shown": [_named(place) for place in range(n_classes)],
            "least": list(_EDGES[:n_classes]),
            "pairs": np.bincount(number, minlength=n_classes),
            "impressions": np.bincount(number, weights=per_pair, minlength=n_classes),
        }
    )


def _named(place: int) -> str:
    first = _EDGES[place]
    if place + 1 == len(_EDGES):
        return f"{first:,} or more"
    last = _EDGES[place + 1] - 1
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"
