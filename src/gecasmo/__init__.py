"""gecasmo: write a click model as a short program, compile it, fit it exactly."""

from importlib.metadata import PackageNotFoundError, version

from gecasmo import errors, matrices
from gecasmo.estimation import EM, Gradient
from gecasmo.forms import Empirical, Estimator, Fixed, Logistic, Sum, Table, Torch
from gecasmo.language import Parameter, flip
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import ClickModel, load
from gecasmo.models import (
    CCM,
    CM,
    CZM,
    DBN,
    DCM,
    DCTR,
    DRCTR,
    GCTR,
    PBM,
    RCTR,
    SDBN,
    UBM,
    CountingDCM,
    CountingSDBN,
)

try:
    __version__ = version("gecasmo")
except PackageNotFoundError:  # used from a source tree without installing
    __version__ = "0+unknown"

__all__ = [
    "CCM",
    "CM",
    "CZM",
    "DBN",
    "DCM",
    "DCTR",
    "DRCTR",
    "EM",
    "GCTR",
    "PBM",
    "RCTR",
    "SDBN",
    "UBM",
    "ClickLog",
    "ClickModel",
    "CountingDCM",
    "CountingSDBN",
    "Empirical",
    "Estimator",
    "Fixed",
    "Gradient",
    "Logistic",
    "Parameter",
    "Sum",
    "Table",
    "Torch",
    "errors",
    "flip",
    "load",
    "matrices",
    "read_log",
]
