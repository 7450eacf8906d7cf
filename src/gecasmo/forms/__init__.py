"""How the rows of a coin get their probability: a table, a constant, a regression, a network.

A form knows nothing of clicks, only of rows, features and expected heads and tails.
"""

from gecasmo.forms.densities import Densities
from gecasmo.forms.estimator import Estimator
from gecasmo.forms.families import Beta, Exponential, Family, Gamma, LogNormal, Normal
from gecasmo.forms.fixed import Fixed
from gecasmo.forms.form import Form, FormState, Posterior, form_named
from gecasmo.forms.logistic import Logistic
from gecasmo.forms.memory import Memory
from gecasmo.forms.priors import Empirical
from gecasmo.forms.recurrent import Recurrent
from gecasmo.forms.sum import Sum
from gecasmo.forms.table import Table
from gecasmo.forms.table_state import TableState, beta_draws
from gecasmo.forms.torch import Torch

__all__ = [
    "Beta",
    "Densities",
    "Empirical",
    "Estimator",
    "Exponential",
    "Family",
    "Fixed",
    "Form",
    "FormState",
    "Gamma",
    "LogNormal",
    "Logistic",
    "Memory",
    "Normal",
    "Posterior",
    "Recurrent",
    "Sum",
    "Table",
    "TableState",
    "Torch",
    "beta_draws",
    "form_named",
]
