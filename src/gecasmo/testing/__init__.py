"""For people who write models: an exam for any model, and generated kernels as plain Python."""

from gecasmo.testing.exam import Check, CheckReport, ModelCheckError, check_model
from gecasmo.testing.subject import plain_python

__all__ = ["Check", "CheckReport", "ModelCheckError", "check_model", "plain_python"]
