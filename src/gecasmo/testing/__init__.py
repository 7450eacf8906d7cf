"""For people who write models and forms: laws that all must keep, and kernels as plain Python."""

from gecasmo.testing.form_check import FormCheckError, check_form
from gecasmo.testing.model_check import Check, CheckReport, ModelCheckError, check_model
from gecasmo.testing.subject import plain_python

__all__ = [
    "Check",
    "CheckReport",
    "FormCheckError",
    "ModelCheckError",
    "check_form",
    "check_model",
    "plain_python",
]


def __dir__() -> list[str]:
    return sorted(__all__)
