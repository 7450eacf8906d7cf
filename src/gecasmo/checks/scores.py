"""What each observed result says about each row, and about the free parameters behind the rows.

The likelihood of a log depends on the parameters only through P(what a result shows | what was
shown above it). The derivative of the logarithm of that probability by the logits of all rows is
the score of the result. Scores tell everything the check wants to know: directions that no score
has a part in are not identified, and their weighted squares add up to the information.

Scores come from the E-step of the model itself: the derivative of a page's log-likelihood by a
logit is heads - (heads + tails) * probability. A page whose lower results are not looked at is one
more page, and the difference of two such pages is the score of one result.

How the logits of rows depend on what is estimated is up to the forms of the coins, whatever they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.checks.findings import row_text
from gecasmo.checks.subject import Bools
from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.forms import Form, FormState
from gecasmo.logs import ClickLog
from gecasmo.model import Model

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Forms with longer vectors are left alone.
MOST_COEFFICIENTS = 60


@dataclass(frozen=True)
class Scores:
    """A line per result with results above it known, a column per row of each coin.

    Attributes
    ----------
    matrix : the derivative of log P(shown | above) by the logit of each row
    probability : P(shown | above) of each line
    weight : the weight of the line's page
    session : the session of the log that the line belongs to
    flips : how often each row is expected to be flipped
    rows : the rows of each coin
    first : where the columns of each coin begin, with the number of columns at the end
    is_binary : whether a result shows a click or nothing, and no other signal
    """

    matrix: Floats
    probability: Floats
    weight: Floats
    session: Integers
    flips: Floats
    rows: tuple[Rows, ...]
    first: Integers
    is_binary: bool

    def information(self, lines: NDArray[np.bool_]) -> Floats:
        """The expected information of some lines on the logits, given what was shown above."""
        matrix = self.matrix[lines]
        if self.is_binary:
            # Both outcomes have scores along one line: averaging over them is a factor.
            odds = self.probability / np.maximum(1 - self.probability, 1e-12)
        else:
            odds = np.ones(len(self.probability))
        information: Floats = matrix.T @ (matrix * (self.weight * odds)[lines, None])
        return information


def score_results(
    model: Model,
    log: ClickLog,
    probabilities: Callable[[Sequence[Rows]], Sequence[Floats]],
    weight: Floats | None = None,
) -> Scores:
    """The scores of all results of a small log in which no page is impossible.

    Parameters
    ----------
    probabilities : the probabilities of all rows of each coin, given these rows
    weight : another weight for each session than that of the log
    """
    seen = model.encode(log, "e_step", with_missing=True, merge=False)
    if weight is not None:
        # Each session is a page of its own, in another order.
        seen = replace(seen, weight=np.asarray(weight, float)[np.argsort(seen.page_of_session)])
    hidden = model.encode(
        log, "e_step", with_missing=True, merge=False, missing=np.ones(log.n_results, bool)
    )
    cut, page, length = _cut_pages(seen, hidden)
    gradient, log_likelihood, flips = _page_scores(model, cut, probabilities(seen.rows))
    # The score of a result is what looking at one more result adds; nothing seen adds nothing.
    is_first = length == 1
    above = np.where(is_first[:, None], 0.0, np.roll(gradient, 1, axis=0))
    likelihood_above = np.where(is_first, 0.0, np.roll(log_likelihood, 1))
    weight = seen.weight[page]
    is_whole = np.r_[page[1:] != page[:-1], True] if len(page) else np.zeros(0, bool)
    return Scores(
        matrix=gradient - above,
        probability=np.minimum(np.exp(log_likelihood - likelihood_above), 1.0),
        weight=weight,
        session=np.argsort(seen.page_of_session)[page],
        flips=(flips * (weight * is_whole)[:, None]).sum(axis=0),
        rows=tuple(seen.rows),
        first=np.concatenate([[0], np.cumsum([len(rows) for rows in seen.rows])]),
        is_binary=len(model.counting_structure.traced.signals) == 1,
    )


def _cut_pages(seen: EncodedLog, hidden: EncodedLog) -> tuple[EncodedLog, Integers, Integers]:
    """A page for each result, with whatever is below it not looked at.

    Also says which page each comes from and how many of its results are looked at.
    """
    lengths = np.diff(seen.obs_start)
    page = np.repeat(np.arange(seen.n_pages), lengths)
    looked_at = np.arange(len(page)) - seen.obs_start[page] + 1
    places, place_in_page = _places_of(seen.obs_start[page], lengths[page])
    is_seen = place_in_page < np.repeat(looked_at, lengths[page])
    codes = list(seen.codes)
    first_rows = [rows[page] if len(rows) else rows for rows in seen.first_rows]
    for plan in seen.plan.coins:
        if plan.scope == "page":
            codes[plan.codes] = np.ascontiguousarray(seen.codes[plan.codes][page])
        elif plan.history:
            codes[plan.codes] = np.ascontiguousarray(seen.codes[plan.codes][places])
    cut = replace(
        seen,
        codes=codes,
        first_rows=first_rows,
        obs=np.ascontiguousarray(np.where(is_seen, seen.obs[places], hidden.obs[places])),
        obs_start=np.concatenate([[0], np.cumsum(lengths[page])]).astype(np.int64),
        row_start=np.ascontiguousarray(seen.row_start[page]),
        weight=np.ones(len(page)),
        shifts=[0] * len(seen.shifts),
        page_of_session=np.arange(len(page), dtype=np.uint32),
    )
    return cut, page, looked_at


def _places_of(starts: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """The places of all results of pages one after the other, and their places in the page."""
    ends = np.cumsum(lengths)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return np.repeat(starts, lengths) + within, within


def _page_scores(
    model: Model, encoded: EncodedLog, probabilities: Sequence[Floats]
) -> tuple[Floats, Floats, Floats]:
    """Per page: the derivative of its log-likelihood by every logit, that itself, and flips.

    The E-step keeps a table of counts for each of its buckets: with one page in each bucket, these
    are the counts of single pages.
    """
    library = model.library(encoded.plan, counting=True)
    weights = [as_weights(np.ascontiguousarray(p, np.float64)) for p in probabilities]
    at = np.concatenate([np.zeros(0), *probabilities])
    gradients, likelihoods, flips = (
        [np.zeros((0, len(at)))],
        [np.zeros(0)],
        [np.zeros((0, len(at)))],
    )
    encoded = replace(encoded, bucket_start=np.zeros(N_BUCKETS + 1, np.int64))
    expectation = Expectation(encoded, library, "minimal", with_missing=True, threads=1)
    for begin in range(0, encoded.n_pages, N_BUCKETS):
        end = min(begin + N_BUCKETS, encoded.n_pages)
        encoded.bucket_start[:] = np.minimum(begin + np.arange(N_BUCKETS + 1), end)
        expectation.run(weights)
        tails, heads = np.concatenate(
            [table[: end - begin] for table in expectation.tables], axis=2
        ).transpose(1, 0, 2)
        gradients.append(heads - (heads + tails) * at)
        flips.append(heads + tails)
        likelihoods.append(expectation.log_likelihood[: end - begin].copy())
    return np.concatenate(gradients), np.concatenate(likelihoods), np.concatenate(flips)


@dataclass(frozen=True)
class Parameters:
    """How the logits of all rows depend on what is estimated.

    Attributes
    ----------
    design : a line per row of each coin, a column per parameter
    coins : the coins of each parameter (several if they share a form)
    rows : the row that a parameter is the logit of, or -1 for a coefficient
    names : each parameter in words
    opaque : coins whose form does not say how it depends on anything
    """

    design: Floats
    coins: tuple[tuple[str, ...], ...]
    rows: NDArray[np.int64]
    names: tuple[str, ...]
    opaque: tuple[str, ...]


def parameters_of(
    model: Model,
    rows: Sequence[Rows],
    states: dict[str, FormState],
    *,
    everything_free: bool = False,
) -> Parameters:
    """The free parameters of a model on these rows.

    With `everything_free` also rows that are given count as free, to see what giving them does.
    """
    sizes = [len(its) for its in rows]
    first = np.concatenate([[0], np.cumsum(sizes)])
    columns: list[Floats] = []
    coins: list[tuple[str, ...]] = []
    row_of: list[int] = []
    names: list[str] = []
    opaque = []
    for tie in _ties(model):
        members = [list(model.forms).index(coin) for coin in tie]
        form, its = model.forms[tie[0]], rows[members[0]]
        if form.row_by_row:
            free = np.ones(len(its), bool) if everything_free else ~form.given_rows(its)
            for row in np.flatnonzero(free).tolist():
                column = np.zeros(first[-1])
                column[first[members[0]] + row] = 1.0
                columns.append(column)
                row_of.append(row)
                names.append(f"{tie[0]} of {row_text(its, row)}" if its.keys else tie[0])
            coins += [tie] * int(free.sum())
            continue
        design = _design(form, states[tie[0]], its)
        if design is None:
            opaque += list(tie)
            continue
        for number in range(design.shape[1]):
            column = np.zeros(first[-1])
            for member in members:
                column[first[member] : first[member + 1]] = design[:, number]
            columns.append(column)
            row_of.append(-1)
            coins.append(tie)
        names += _coefficient_names(form, states[tie[0]], tie[0], design.shape[1])
    matrix = np.array(columns).T if columns else np.zeros((first[-1], 0))
    return Parameters(matrix, tuple(coins), np.array(row_of, np.int64), tuple(names), tuple(opaque))


def random_probabilities(
    model: Model, rows: Sequence[Rows], seed: int, *, everything_free: bool = False
) -> tuple[list[Floats], dict[str, FormState]]:
    """Probabilities somewhere in the middle, no two alike, with given rows as they are given."""
    generator = np.random.default_rng(seed)
    found: dict[int, tuple[Floats, FormState]] = {}
    probabilities, states = [], {}
    for number, (coin, form) in enumerate(model.forms.items()):
        key = id(form) if form.columns else -number - 1
        if key not in found:
            found[key] = _random_state(form, rows[number], generator, everything_free)
        probability, states[coin] = found[key]
        probabilities.append(probability)
    return probabilities, states


def _random_state(
    form: Form, rows: Rows, generator: np.random.Generator, everything_free: bool
) -> tuple[Floats, FormState]:
    state = form.begin(rows, None)
    if form.row_by_row:
        values = generator.uniform(0.2, 0.8, len(rows))
        given: Bools = form.given_rows(rows) & (not everything_free)
        return np.where(given, form.predict(state, rows), values), state
    if form.has_vector:
        vector = np.asarray(form.vector(state), float)
        state = form.from_vector(state, vector + generator.normal(0, 0.3, len(vector)))
    return np.clip(np.asarray(form.predict(state, rows), float), 0.05, 0.95), state


def _ties(model: Model) -> list[tuple[str, ...]]:
    """Coins by form, as fits tie them: forms with features are shared, tables are not."""
    ties: dict[int, list[str]] = {}
    for number, (coin, form) in enumerate(model.forms.items()):
        ties.setdefault(id(form) if form.columns else -number - 1, []).append(coin)
    return [tuple(coins) for coins in ties.values()]


def _design(form: Form, state: FormState, rows: Rows) -> Floats | None:
    """How the logits of rows follow a form's vector, which is linear; None if there is none."""
    if not form.has_vector:
        return None
    vector = np.asarray(form.vector(state), float)
    if len(vector) > MOST_COEFFICIENTS:
        return None
    step = 0.1
    columns = [
        _logits(form, form.from_vector(state, vector + step * unit), rows)
        - _logits(form, form.from_vector(state, vector - step * unit), rows)
        for unit in np.eye(len(vector))
    ]
    return np.array(columns).T.reshape(len(rows), len(vector)) / (2 * step)


def _logits(form: Form, state: FormState, rows: Rows) -> Floats:
    from scipy.special import logit

    p = np.clip(np.asarray(form.predict(state, rows), float), 1e-12, 1 - 1e-12)
    logits: Floats = logit(p)
    return logits


def _coefficient_names(form: Form, state: FormState, coin: str, size: int) -> list[str]:
    """The names that a form has for its coefficients, if it has some for all of them."""
    frame = form.coefficients(state)
    if frame is not None:
        texts = [name for name, dtype in frame.schema.items() if dtype.is_numeric() is False]
        if len(frame) == size and texts:
            return [f"{coin}: {' '.join(map(str, row))}" for row in frame.select(texts).rows()]
    return [f"{coin}: coefficient {number + 1}" for number in range(size)]
