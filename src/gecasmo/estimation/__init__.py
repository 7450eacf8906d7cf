"""Turn kernels, codes and forms into fitted forms; no method knows which model it fits."""

from gecasmo.estimation.coins import Coin
from gecasmo.estimation.constraints import AtMost, Prefer
from gecasmo.estimation.em import EM, Method, Record, Solution
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.estimation.gibbs import Gibbs
from gecasmo.estimation.gradient import Gradient
from gecasmo.estimation.problem import Problem
from gecasmo.estimation.variational import VB

__all__ = [
    "EM",
    "VB",
    "AtMost",
    "Coin",
    "Counts",
    "Expectation",
    "Gibbs",
    "Gradient",
    "Method",
    "Prefer",
    "Problem",
    "Record",
    "Solution",
]
