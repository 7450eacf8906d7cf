"""Scores of results against derivatives of the model's own predictions, taken by differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from checked_logs import by_doc, pages_log, random_clicks

from gecasmo import CCM, DBN, DCM, PBM, SDBN, UBM, ClickLog
from gecasmo.checks.scores import score_results
from gecasmo.checks.subject import begin


def some_pages(seed: int) -> ClickLog:
    rng = np.random.default_rng(seed)
    pages = [
        [str(d) for d in rng.permutation(list("abcd"))[: rng.integers(1, 5)]] for _ in range(9)
    ]
    return pages_log(pages, random_clicks(pages, 0.4, seed))


class Fitted:
    """A model whose rows have probabilities that can be moved one by one."""

    def __init__(self, model: Any, log: ClickLog, seed: int) -> None:
        self.model, self.log = model, log
        self.rows = model.encode(log, "e_step", merge=False).rows
        rng = np.random.default_rng(seed)
        self.logits = [rng.normal(0, 1, len(rows)) for rows in self.rows]

    def probabilities(self, rows: Sequence[Any] = ()) -> list[np.ndarray]:
        return [1 / (1 + np.exp(-x)) for x in self.logits]

    def conditional(self) -> np.ndarray:
        """P(what each result shows | clicks above), in the order of the log's rows."""
        twin = self.model.copy()
        states = begin(self.model, self.rows)
        for (coin, form), values in zip(self.model.forms.items(), self.logits, strict=True):
            states[coin] = form.from_vector(states[coin], values)
        twin.states_ = states
        p = twin.predict_conditional_clicks(self.log)
        return np.where(self.log.click, p, 1 - p)


@pytest.mark.parametrize("model", [PBM, UBM, DBN, SDBN, DCM, CCM])
def test_scores_are_derivatives_of_conditional_probabilities(model: type) -> None:
    log = some_pages(1)
    fitted = Fitted(by_doc(model), log, 2)
    scores = score_results(fitted.model, log, fitted.probabilities)
    # Lines go session by session in some order, and down the page within each.
    order = np.lexsort((np.arange(len(scores.session)), scores.session))
    line_of_row = np.empty(log.n_results, int)
    line_of_row[log.order] = order
    np.testing.assert_allclose(scores.probability[line_of_row], fitted.conditional(), rtol=1e-9)
    column = 0
    for values in fitted.logits:
        for row in range(len(values)):
            sides = []
            for step in (1e-5, -1e-5):
                values[row] += step
                sides.append(np.log(fitted.conditional()))
                values[row] -= step
            slope = (sides[0] - sides[1]) / 2e-5
            np.testing.assert_allclose(scores.matrix[line_of_row, column], slope, atol=1e-7)
            column += 1
    assert column == scores.matrix.shape[1]


def test_information_is_the_mean_square_of_scores() -> None:
    """Over both outcomes of a single result, by hand: p (1 - p) times the squared derivative."""
    log = pages_log([["a"]], [[1]])
    model = by_doc(PBM)
    examination, attraction = 0.6, 0.3
    scores = score_results(
        model, log, lambda rows: [np.array([examination]), np.array([attraction])]
    )
    p = examination * attraction
    slopes = np.array([p * (1 - examination), p * (1 - attraction)])  # by the logits
    expected = np.outer(slopes, slopes) / (p * (1 - p))
    np.testing.assert_allclose(scores.information(np.ones(1, bool)), expected, rtol=1e-9)
    skipped = score_results(
        model,
        pages_log([["a"]], [[0]]),
        lambda rows: [np.array([examination]), np.array([attraction])],
    )
    np.testing.assert_allclose(skipped.information(np.ones(1, bool)), expected, rtol=1e-9)


def test_weights_go_to_their_sessions() -> None:
    log = pages_log([["a", "b"], ["b", "a"], ["c"]], [[1, 0], [0, 1], [0]])
    scores = score_results(
        by_doc(PBM),
        log,
        lambda rows: [np.full(len(its), 0.5) for its in rows],
        np.array([1.0, 2.0, 5.0]),
    )
    by_session = {int(s): w for s, w in zip(scores.session, scores.weight, strict=True)}
    assert by_session == {0: 1.0, 1: 2.0, 2: 5.0}
    assert np.bincount(scores.session).tolist() == [2, 2, 1]
