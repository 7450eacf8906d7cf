"""The forms that files can hold, by name."""

from __future__ import annotations

from typing import Any

from gecasmo.errors import SavedModelError
from gecasmo.forms.estimator import Estimator
from gecasmo.forms.fixed import Fixed
from gecasmo.forms.logistic import Logistic
from gecasmo.forms.sum import Sum
from gecasmo.forms.table import Table
from gecasmo.forms.torch import Torch

FORMS: dict[str, type[Any]] = {
    form.__name__: form for form in (Table, Fixed, Logistic, Estimator, Torch, Sum)
}


def form_named(name: str) -> type[Any]:
    """The class of a saved form."""
    if name not in FORMS:
        raise SavedModelError(f"The form {name!r} is not known to this version.")
    return FORMS[name]
