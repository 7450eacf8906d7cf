"""Logits and probabilities against SciPy's."""

from __future__ import annotations

import numpy as np
from scipy import special

from gecasmo.forms.logits import expit, logit


def test_as_scipy_has_them() -> None:
    p = np.concatenate([[0.0, 1.0, 1e-300, 1e-17, 1 - 1e-16], np.linspace(0, 1, 2_001)])
    near_half = 0.5 + np.linspace(-1e-6, 1e-6, 101)
    for values in (p, near_half):
        np.testing.assert_allclose(logit(values), special.logit(values), rtol=1e-13, atol=1e-300)
    x = np.concatenate([[-np.inf, -800.0, 800.0, np.inf], np.linspace(-40, 40, 401)])
    np.testing.assert_allclose(expit(x), special.expit(x), rtol=1e-14)
