"""What randomised pages say of a change, without and with the model.

On a randomised page results stand at ranks by chance. Where one stands as the changed page would
have it, its click counts, divided by the probability of that (inverse propensities). This assumes
that a click depends on the result and its rank, not on what else is on the page. The doubly robust
estimate begins with the model, and corrects it by what it got wrong where results match.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OffPolicy:
    """Clicks a changed page, on the randomised pages of a log.

    Attributes
    ----------
    pages : how many there are
    matches : results that stand where the change would put them
    frame : by `estimate` ("model", "inverse propensity", "doubly robust"): `clicks`, `low`, `high`;
        and `difference`, its distance to the model, with `z`, the same in standard errors
    """

    pages: int
    matches: int
    frame: pl.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        estimates = self.frame.to_dicts()
        return {"pages": self.pages, "matches": self.matches, "estimates": estimates}


def off_policy(
    model: Model,
    before: ClickLog,
    after: ClickLog,
    randomised: str,
    propensity: str | None,
    level: float,
) -> OffPolicy:
    """Estimate the clicks of changed pages from those that were randomised.

    `propensity` is the column with the probability that a result stands where it stands; without it
    every order of a page was as likely as any other.
    """
    chosen = _flags(before, randomised)
    if not chosen.any():
        raise ClickLogError(f"The column '{randomised}' marks no page of the log as randomised.")
    before, after = before.take(chosen), after.take(chosen)
    # Where each result of the log stands after the change, 0 if it does not.
    pair = ["*page", "doc"]
    old = _placed(before)
    if old.select(pair).is_duplicated().any():
        raise ClickLogError("A randomised page shows a document twice, so it is unknown which one.")
    new = _placed(after).rename({"*rank": "*new"})
    expected = pl.Series("*model", model.predict_clicks(before))
    both = old.with_columns(expected).join(new, on=pair, how="left", maintain_order="left")
    hits = (both["*rank"] == both["*new"]).fill_null(False).to_numpy()
    share = _propensities(before, propensity)
    weight = np.where(hits, 1 / share, 0.0)
    click = before.click.astype(float)
    page, n = before.page, before.n_sessions
    by_model = _by_page(after.page, model.predict_clicks(after), n)
    by_weight = _by_page(page, weight * click, n)
    correction = _by_page(page, weight * (click - expected.to_numpy()), n)
    pages: dict[str, Floats] = {
        "model": by_model,
        "inverse propensity": by_weight,
        "doubly robust": by_model + correction,
    }
    total = before.weight / before.weight.sum()
    z = NormalDist().inv_cdf((1 + level) / 2)
    rows = []
    for name, values in pages.items():
        mean = float(values @ total)
        error = _error(values, total)
        gap = values - by_model
        gap_error = _error(gap, total)
        off = float(gap @ total)
        rows.append(
            {
                "estimate": name,
                "clicks": mean,
                "low": mean - z * error,
                "high": mean + z * error,
                "difference": off,
                "z": off / gap_error if gap_error > 0 else 0.0,
            }
        )
    return OffPolicy(before.n_sessions, int(hits.sum()), pl.DataFrame(rows))


def _by_page(page: NDArray[Any], values: Floats, n: int) -> Floats:
    """Sums of results over their pages."""
    return np.bincount(page, values, minlength=n).astype(float)


def _error(values: Floats, share: Floats) -> float:
    """The standard error of a weighted mean over pages."""
    mean = values @ share
    return float(
        np.sqrt((share**2 * (values - mean) ** 2).sum() * len(share) / max(len(share) - 1, 1))
    )


def _placed(log: ClickLog) -> pl.DataFrame:
    rank = pl.Series("*rank", log.rank)
    return pl.DataFrame([pl.Series("*page", log.page), log.column("doc").alias("doc"), rank])


def _flags(log: ClickLog, column: str) -> NDArray[np.bool_]:
    """Which pages are randomised."""
    if column not in log.columns:
        raise ClickLogError(
            f"There is no column '{column}' to say which pages are randomised; the log has: "
            f"{', '.join(log.columns)}."
        )
    values = log.session_column(column)
    if not (values.dtype == pl.Boolean or values.dtype.is_integer()):
        raise ClickLogError(f"The column '{column}' of randomised pages is not of yes and no.")
    found: NDArray[np.bool_] = values.cast(pl.Boolean).fill_null(False).to_numpy()
    return found


def _propensities(log: ClickLog, column: str | None) -> Floats:
    if column is None:
        return (1 / log.lengths)[log.page]
    values: Floats = log.column(column).cast(pl.Float64).fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~((values > 0) & (values <= 1)))
    if len(wrong):
        raise ClickLogError(
            f"The column '{column}' of propensities has no probability in {len(wrong):,} rows, "
            f"first in row {wrong[0]}."
        )
    return values
