"""An independent library, run unmodified on the same log, estimates the same numbers."""

import json
from pathlib import Path

import pytest

import gecasmo
from gecasmo import EM, Table
from gecasmo.models import CATALOGUE

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())["models"]


@pytest.fixture(scope="module")
def log():
    return gecasmo.read_log(HERE / "log.csv")


def as_dict(frame):
    """Probabilities by the keys of the fixture: `query|doc`, `rank`, `rank|last_click`."""
    keys = [name for name in frame.columns if name not in ("probability", "heads", "tails")]
    rows = frame.select(keys).rows() if keys else [()]
    names = ["|".join(map(str, row)) for row in rows]
    return dict(zip(names, frame["probability"], strict=True))


def fitted(name, log, method):
    model = CATALOGUE[name]
    coins = model().forms
    return model(**{c: Table(pseudo_counts=(1, 1), start=0.5) for c in coins}).fit(log, method)


def assert_parameters(model, expected, tolerance):
    for coin, values in expected.items():
        if coin == "log_likelihood_per_session_and_rank":
            continue
        found = as_dict(model.parameters[coin])
        if isinstance(values, float):
            assert next(iter(found.values())) == pytest.approx(values, abs=tolerance)
        else:
            assert found.keys() == values.keys()
            for key, value in values.items():
                assert found[key] == pytest.approx(value, abs=tolerance), (coin, key)


@pytest.mark.parametrize("name", ["PBM", "UBM"])
@pytest.mark.parametrize("n_iterations", [1, 2, 10, 50])
def test_textbook_em_step_by_step(name, n_iterations, log):
    method = EM(max_iter=n_iterations, tol=0, accelerate=False, augmentation="full")
    model = fitted(name, log, method)
    expected = EXPECTED[f"{name}@{n_iterations}"]
    assert_parameters(model, expected, 1e-10)
    per_result = expected["log_likelihood_per_session_and_rank"]
    assert model.evaluate(log).log_likelihood_per_result == pytest.approx(per_result, abs=1e-10)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("GCTR", "GCTR"),
        ("RCTR", "RCTR"),
        ("DCTR", "DCTR"),
        ("DCM", "CountingDCM"),
        ("SDBN", "CountingSDBN"),
    ],
)
def test_counting_models(name, ours, log):
    model = fitted(ours, log, EM(max_iter=1, tol=0, accelerate=False))
    assert_parameters(model, EXPECTED[name], 1e-12)
