"""Programs that choose among several values, with coins that have a row per hidden state."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given

from strategies.cases import Case, cases
from strategies.checks import close_to, many
from strategies.programs import programs_of_kinds

of_kinds = cases(program=programs_of_kinds(), max_pages=4, max_results=3)


@many(20)
@given(of_kinds)
def test_likelihoods_and_clicks_are_those_of_enumeration(case: Case) -> None:
    likelihood = [
        np.log(case.oracles[number].likelihood(case.shown[number])) for number in case.session_of
    ]
    close_to(case.model.log_likelihood(case.log), likelihood)
    places = list(zip(case.table["session"], case.place_of, strict=True))
    wanted = [case.oracles[number].marginal_click(place) for number, place in places]
    close_to(case.model.predict_clicks(case.log), wanted)


@many(20)
@given(of_kinds)
def test_full_counts_and_minimal_scores_are_those_of_enumeration(case: Case) -> None:
    counts: dict[Any, np.ndarray] = defaultdict(lambda: np.zeros(2))
    for number, weight in enumerate(case.weights):
        oracle, shown = case.page(number)
        for key, sides in oracle.counts(shown).items():
            counts[key] += weight * np.array(sides)
    full, minimal = (
        {
            (coin, row[:-2]): np.array(row[-2:])
            for coin, frame in case.model.expected_counts(case.log, augmentation=kind).items()
            for row in frame.rows()
        }
        for kind in ("full", "minimal")
    )
    for key in counts.keys() | full.keys():
        close_to(full.get(key, np.zeros(2)), counts[key])
        theta = case.values(*key)
        for sides in (minimal.get(key, np.zeros(2)), counts[key]):
            sides[:] = sides[0] * (1 - theta) - sides[1] * theta
        close_to(minimal.get(key, np.zeros(2)), counts[key])
