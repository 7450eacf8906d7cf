"""For people who write models: laws that all have to keep, and kernels as plain Python."""

from gecasmo.testing.model_check import Check, CheckReport, ModelCheckError, check_model
from gecasmo.testing.subject import plain_python

__all__ = ["Check", "CheckReport", "ModelCheckError", "check_model", "plain_python"]
