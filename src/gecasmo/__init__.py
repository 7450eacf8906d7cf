"""gecasmo: write a click model as a short program, compile it, fit it exactly."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gecasmo import errors, matrices
from gecasmo.estimation import EM, VB, AtMost, Gibbs, Gradient, Prefer
from gecasmo.forms import (
    Beta,
    Empirical,
    Estimator,
    Exponential,
    Family,
    Fixed,
    Form,
    Gamma,
    Logistic,
    LogNormal,
    Normal,
    Recurrent,
    Sum,
    Table,
    Torch,
)
from gecasmo.language import Choice, Density, Parameter, choose, flip
from gecasmo.logs import ClickLog, read_counts, read_events, read_log
from gecasmo.model import ClickModel, load
from gecasmo.models import *  # noqa: F403 (the zoo, whose list is there)
from gecasmo.models import CATALOGUE, CZM

if TYPE_CHECKING:
    from gecasmo.checks import check
    from gecasmo.evaluation import compare
    from gecasmo.logs.store import open_log

# Made when they are first asked for: `import gecasmo` stays light.
_LATER = {
    "check": "gecasmo.checks",
    "compare": "gecasmo.evaluation",
    "open_log": "gecasmo.logs.store",
}
_MODULES = ("judgments", "models", "plots", "simulation", "spark", "testing", "torch")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"gecasmo.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'gecasmo' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])


try:
    __version__ = version("gecasmo")
except PackageNotFoundError:  # used from a source tree without installing
    __version__ = "0+unknown"

__all__ = [
    "CZM",
    "EM",
    "AtMost",
    "Beta",
    "VB",
    "Choice",
    "ClickLog",
    "ClickModel",
    "Density",
    "Empirical",
    "Estimator",
    "Exponential",
    "Family",
    "Fixed",
    "Form",
    "Gamma",
    "Gibbs",
    "Gradient",
    "LogNormal",
    "Logistic",
    "Normal",
    "Parameter",
    "Prefer",
    "Recurrent",
    "Sum",
    "Table",
    "Torch",
    "check",
    "choose",
    "compare",
    "errors",
    "flip",
    "load",
    "matrices",
    "open_log",
    "read_counts",
    "read_events",
    "read_log",
    *CATALOGUE,
]
