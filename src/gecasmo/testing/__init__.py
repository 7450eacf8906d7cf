"""For people who write models and forms: an exam for each, and kernels as plain Python."""

from gecasmo.testing.exam import Check, CheckReport, ModelCheckError, check_model
from gecasmo.testing.form_exam import FormCheckError, check_form
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
