"""`check_model` passes every model of the zoo, whatever the seed, and no model that is broken."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import numpy as np
import pytest

from gecasmo import ClickModel, Parameter, flip
from gecasmo.compiler import Automaton
from gecasmo.errors import GecasmoWarning
from gecasmo.estimation import EM
from gecasmo.forms import TableState
from gecasmo.models import CATALOGUE
from gecasmo.testing import ModelCheckError, check_model, plain_python
from gecasmo.testing.subject import Subject

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
SEEDS = range(2 if MORE == 1 else 40 * MORE)
WHOLE_SEEDS = range(1 if MORE == 1 else 4 * MORE)
BROKEN_SEEDS = range(1 if MORE == 1 else MORE)


class Trust(ClickModel):
    """A model of a user's own: clicks depend on where a result stands, attractive or not."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")
    trust = Parameter("rank")
    noise = Parameter("rank")

    def browse(self, user, result):
        if flip(self.examination) and flip(self.trust if flip(self.attraction) else self.noise):
            user.click()


MODELS = {**CATALOGUE, "Trust": Trust}


@pytest.mark.parametrize("name", MODELS)
def test_sound_models_pass(name: str) -> None:
    for seed in SEEDS:
        assert check_model(MODELS[name], seed=seed, compiled=False).passed


@pytest.mark.parametrize("name", MODELS)
def test_whole_fits_climb(name: str) -> None:
    """What takes longest, priors and how sure rows are, is learned for fewer logs."""
    for seed in WHOLE_SEEDS:
        subject = Subject(MODELS[name](), seed, compiled=False)
        with plain_python(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            fitted = subject.blank.copy().fit(subject.possible, EM(6, restarts=1))
        for _, climb in fitted.history.group_by("round"):
            objective = climb["objective"].to_numpy()
            assert (np.diff(objective) >= -1e-10 * max(1, abs(objective[-1]))).all()
        for state in fitted.states().values():
            if isinstance(state, TableState):
                assert np.isfinite(state.spread).all()


def test_kernels_pass_as_compiled() -> None:
    assert check_model(CATALOGUE["DBN"]).passed


# -- broken models -------------------------------------------------------------------------------
def swapped(automaton: Automaton) -> Automaton:
    """Two edges of a state show what the other one should."""
    edges = list(automaton.edges)
    first, second = next(
        (a, b)
        for a, one in enumerate(edges)
        for b, other in enumerate(edges)
        if one.source == other.source and one.symbol and not other.symbol
    )
    one, other = edges[first], edges[second]
    edges[first] = replace(one, symbol=other.symbol)
    edges[second] = replace(other, symbol=one.symbol)
    return automaton.with_edges(edges)


def forgetful(automaton: Automaton) -> Automaton:
    """An edge does not know the last of its flips."""
    edges = list(automaton.edges)
    place = max(range(len(edges)), key=lambda n: len(edges[n].literals))
    edges[place] = replace(edges[place], literals=edges[place].literals[:-1])
    return automaton.with_edges(edges)


def mistaken(automaton: Automaton) -> Automaton:
    """A flip is taken for one of another coin, wherever it is made."""
    one, other = automaton.parameters[:2]
    return automaton.with_edges(
        replace(
            edge,
            literals=tuple(
                x._replace(parameter=other) if x.parameter == one else x for x in edge.literals
            ),
        )
        for edge in automaton.edges
    )


@pytest.mark.parametrize("fault", [swapped, forgetful, mistaken])
@pytest.mark.parametrize("name", ["PBM", "UBM", "DCM", "DBN", "CCM", "Trust"])
def test_a_wrong_automaton_is_found(name: str, fault, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    trace = model._trace
    monkeypatch.setattr(model, "_trace", lambda self: fault(trace(self)))
    for seed in BROKEN_SEEDS:
        with pytest.raises(ModelCheckError, match="FAIL"):
            check_model(model, seed=seed, compiled=False)


@pytest.mark.parametrize("name", ["RCTR", "PBM", "UBM", "DBN", "CCM", "Trust"])
def test_a_wrong_key_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read rows as if the key were that of the result above."""
    model = MODELS[name]
    encode = model.encode

    def shifted(self, *given, **options):
        encoded = encode(self, *given, **options)
        return replace(encoded, codes=[np.roll(own, 1) for own in encoded.codes])

    monkeypatch.setattr(model, "encode", shifted)
    for seed in BROKEN_SEEDS:
        with pytest.raises(ModelCheckError, match="FAIL"):
            check_model(model, seed=seed, compiled=False)
