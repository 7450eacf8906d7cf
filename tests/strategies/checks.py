"""Settings and comparisons that all proofs share."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings

EXACT = 1e-10

# Shrinking a program with a log takes minutes: GECASMO_SHRINK=1 asks for it, a hunt does not.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if os.environ.get("GECASMO_SHRINK"):
    _PHASES.append(Phase.shrink)


# Examples are the same in every run, so that few of them will do; a soak makes new ones.
_SHARE = float(os.environ.get("GECASMO_EXAMPLES", "0.3"))


def many(n: int) -> Any:
    """So many examples times GECASMO_EXAMPLES, or a share of them."""
    return settings(
        max_examples=max(3, round(n * _SHARE)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=_PHASES,
        report_multiple_bugs=False,
        derandomize="GECASMO_EXAMPLES" not in os.environ,
        database=None,
    )


def close_to(a: Any, b: Any, tolerance: float = EXACT) -> None:
    """Equal up to rounding, relative or absolute."""
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
