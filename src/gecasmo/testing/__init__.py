"""For people who write models: laws that any model has to keep, and generated kernels as plain Python."""

from gecasmo.testing.model_check import Check, CheckReport, ModelCheckError, check_model
from gecasmo.testing.subject import plain_python

__all__ = ["Check", "CheckReport", "ModelCheckError", "check_model", "plain_python"]
