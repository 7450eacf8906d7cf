"""What a fitted model believes: draws from its posterior, for it and for others such as ArviZ.

ArviZ has diagnostics, charts and leave-one-out scores of posteriors. Up to version 0.23 its data
are an `InferenceData`, from 1.0 on an `xarray.DataTree`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import GecasmoWarning, ModelError, extra, tell
from gecasmo.estimation.draws import Draws
from gecasmo.estimation.shared_errors import SharedMoves
from gecasmo.forms import Form, FormState
from gecasmo.forms.drawn_rows import Moved
from gecasmo.hashes import mixed
from gecasmo.logs import ClickLog
from gecasmo.model.page_run import Filtered, PageRun

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

# Likelihoods of pages that are worked out for ArviZ at most, in numbers.
_MOST_LIKELIHOODS = 20_000_000


def draws_of(model: Model, coin: str | None, n: int, seed: int) -> Any:
    """See `Model.draws`."""
    states = model.states()
    if coin is None:
        if model.draws_ is None:
            raise ModelError(
                f"This {model.name} has no draws of its own: fit it with Gibbs(), or name a coin, "
                f"such as draws({next(iter(model.forms))!r}), to draw from what is believed of its "
                "rows."
            )
        return model.draws_
    if coin not in states:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    if model.draws_ is not None and coin in model.draws_.rows:
        return model.draws_.rows[coin]
    if n < 1:
        raise ModelError(f"draws(n={n}): at least one is needed.")
    form = model.forms[coin]
    if not form.has_posterior and form.constant is None:
        raise ModelError(
            f"The form {form!r} of '{coin}' has no posterior of rows to draw from; a Table has."
        )
    drawn = drawn_states(model, n, seed, only=(coin,))
    return np.stack([_probability(form, states[coin]) for states in drawn])[None]


def _probability(form: Any, state: FormState) -> Floats:
    found: Floats = form.to_frame(state)["probability"].to_numpy()
    return found


def drawn_states(
    model: Model,
    most: int,
    seed: int,
    only: Collection[str] | None = None,
    scatter: float = 1.0,
) -> Iterator[dict[str, FormState]]:
    """At most so many joint draws of the states of all coins: those of a fit by Gibbs, else what
    pages and rows have in common from their covariance, and then each row from what is believed of
    it there.

    With `only`, the others stay as they are; with a `scatter` below 1 rows stray less by
    themselves, as they do in a mean over more of them.
    """
    states = model.states()
    if model.draws_ is not None:
        for rows in model.draws_.chosen(most):
            yield {
                coin: replace(state, probability=rows[coin]) if coin in rows else state
                for coin, state in states.items()
            }
        return
    errors, names = model.errors_, list(states)
    for number in range(most):
        # Each coin has its own stream, and so has what all have in common, so that parts of a log
        # meet the same draws of it.
        moves = None
        if errors is not None:
            moves = errors.drawn(np.random.default_rng(mixed(seed, number, len(names))))
        found: dict[str, FormState] = {}
        for place, (coin, state) in enumerate(states.items()):
            form = model.forms[coin]
            alike = next((n for n in found if model.forms[n] is form and states[n] is state), None)
            if alike is not None:  # coins that share a form share its state
                found[coin] = found[alike]
            elif only is not None and coin not in only:
                found[coin] = state
            else:
                rng = np.random.default_rng(mixed(seed, number, place))
                found[coin] = _drawn(form, state, coin, rng, moves, scatter)
        yield found


def _drawn(
    form: Form,
    state: FormState,
    coin: str,
    rng: np.random.Generator,
    moves: SharedMoves | None,
    scatter: float,
) -> FormState:
    """The state of a form, drawn when what coins have in common has moved."""
    if moves is None:
        return form.drawn(state, rng)
    if coin not in moves.numbers:
        return form.drawn_along(state, rng, Moved(moves.numbers, moves.slopes.get(coin), scatter))
    by, origin = moves.numbers[coin], form.vector(state)
    if not form.has_posterior:
        return form.from_vector(state, origin + by)
    moved = form.from_vector(state, np.clip(origin, -20.0, 20.0) + by)
    alone = form.drawn(state, rng)  # rows of which no covariance is known
    return replace(state, probability=np.where(by == 0, alone.probability, moved.probability))


def to_arviz(model: Model, log: ClickLog | None, n: int, seed: int) -> Any:
    """See `Model.to_arviz`."""
    arviz = extra("arviz", "to_arviz", "gecasmo[bayes]")
    draws = _all_draws(model, n, seed)
    groups: dict[str, dict[str, Floats]] = {"posterior": {}}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[Any]] = {}
    if log is not None:
        draws = _thinned(draws, log)
    for coin, values in draws.rows.items():
        keys = model.keys[coin]
        if not keys:
            groups["posterior"][coin] = values[..., 0]
            continue
        frame = model.parameters[coin].select(keys)
        dims[coin] = [f"{coin}_row"]
        coords[f"{coin}_row"] = ["/".join(map(str, row)) for row in frame.iter_rows()]
        groups["posterior"][coin] = values
    for coin, values in draws.priors.items():
        groups["posterior"][f"{coin}_prior_mean"] = values[..., 0]
        groups["posterior"][f"{coin}_prior_strength"] = values[..., 1]
    if np.isfinite(draws.log_likelihood).all():
        groups["sample_stats"] = {"lp": draws.log_likelihood}
    if log is not None:
        dims["page"] = ["session"]
        coords["session"] = log.sessions.to_list()
        groups["log_likelihood"] = {"page": page_likelihoods(model, log, draws)}
        clicks = np.bincount(log.page, weights=log.click, minlength=log.n_sessions).astype(float)
        groups["observed_data"] = {"page": clicks}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, coords=coords, dims=dims)
    return arviz.from_dict(**groups, coords=coords, dims=dims)


def _all_draws(model: Model, n: int, seed: int) -> Draws:
    """The draws of a fit by Gibbs, else those from what is believed."""
    if model.draws_ is not None:
        return model.draws_
    for coin in model.forms:
        draws_of(model, coin, 1, seed)  # says so if a form has no posterior
    drawn = list(drawn_states(model, n, seed))
    rows = {
        coin: np.stack([_probability(form, states[coin]) for states in drawn])[None]
        for coin, form in model.forms.items()
    }
    return Draws(rows, {}, np.full((1, n), np.nan))


def _thinned(draws: Draws, log: ClickLog) -> Draws:
    """Fewer draws, evenly, if the likelihoods of all pages under all of them would fill memory."""
    n_numbers = draws.n_chains * draws.n_draws * log.n_sessions
    step = -(-n_numbers // _MOST_LIKELIHOODS)
    if step == 1:
        return draws
    tell(
        f"Of {draws.n_draws:,} draws of each chain every {step} are given to ArviZ, since "
        f"likelihoods of {log.n_sessions:,} pages under all of them would fill memory.",
        GecasmoWarning,
    )
    return replace(
        draws,
        rows={coin: values[:, ::step] for coin, values in draws.rows.items()},
        priors={coin: values[:, ::step] for coin, values in draws.priors.items()},
        log_likelihood=draws.log_likelihood[:, ::step],
        thin=draws.thin * step,
    )


def page_likelihoods(model: Model, log: ClickLog, draws: Draws) -> Floats:
    """The log-likelihood of each session under each draw, `[chain, draw, session]`; a session of
    weight 2 counts twice."""
    Filtered(model, log, "raise")
    states = model.states()
    run = PageRun(model, log, "filter")
    found = np.empty((draws.n_chains, draws.n_draws, log.n_sessions))
    probability, click = np.zeros(run.encoded.n_results), np.zeros(run.encoded.n_results)
    for chain in range(draws.n_chains):
        for draw in range(draws.n_draws):
            run.change(
                {
                    coin: replace(state, probability=draws.rows[coin][chain, draw])
                    if model.forms[coin].has_posterior
                    else state
                    for coin, state in states.items()
                }
            )
            run.run(probability, click)
            logs = np.log(np.maximum(run.results(probability, "all"), 1e-300))
            found[chain, draw] = np.bincount(log.page, logs, minlength=log.n_sessions) * log.weight
    return found
