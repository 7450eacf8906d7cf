"""Does the ranker know more than the features of a sum? Then its effects go with ranks.

Effects of rows are thought to be drawn at random around what features say. A ranker that orders
pages by something else that is true shows the good ones high up; what users do not look at further
down then is worse than what they look at, and a sum, which takes it for alike, promises too much
of it. Nothing in the clicks tells that apart from a log in which users leave sooner. But effects
that fall with the rank can be seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.averages import row_averages
from gecasmo.encoding.encoded import EncodedLog
from gecasmo.errors import GecasmoWarning, tell

Floats = NDArray[np.float64]

# A correlation of this size is told of, if it is so many standard errors from none.
_ALIKE, _SURE = 0.22, 4.0


def tell_informed(model: Any, encoded: EncodedLog) -> None:
    """Warn if effects of rows fall with the rank where these stand."""
    states, told = model.states_, set()
    for number, (coin, form) in enumerate(model.forms.items()):
        keys = encoded.rows[number].keys
        found = form.own_effects(states[coin])
        is_placed = encoded.plan.coins[number].scope == "result" and "rank" not in keys
        if found is None or not is_placed or id(states[coin]) in told or encoded.log is None:
            continue
        told.add(id(states[coin]))
        rank = row_averages(encoded, coin, number, keys, ["rank"])["rank"].to_numpy()
        alike, error = correlation(rank, *found)
        if alike < -_ALIKE and alike < -_SURE * error:
            tell(
                f"The coin '{coin}': effects of {', '.join(keys)} fall with the rank at which "
                f"these are shown (correlation {alike:.2f}): the ranker knows what the other parts "
                "of the sum do not tell. Estimates of what is shown low down are then too high, "
                "and intervals too narrow. Give the mean rank, or what the ranker goes by, as a "
                "feature.",
                GecasmoWarning,
            )


def correlation(rank: Floats, mean: Floats, variance: Floats, spread: float) -> tuple[float, float]:
    """Tell how alike effects and ranks are, and the standard error of that were they not. A row
    counts by how much is known of it; of nothing, its effect says nothing."""
    weight = np.clip(1 - variance / spread**2, 0.0, 1.0)
    total, squares = weight.sum(), (weight**2).sum()
    if total < 1e-9:
        return 0.0, 1.0
    x, u = (each - weight @ each / total for each in (rank, mean))
    size = np.sqrt((weight @ x**2) * (weight @ u**2))
    error = float(np.sqrt(squares) / total)
    return (float(weight @ (x * u) / size) if size > 1e-12 else 0.0), error
