"""The doctor: what is wrong with a log, and what it can and cannot tell about a model."""

from gecasmo.checkup.doctor import check
from gecasmo.checkup.findings import Checkup, Finding

__all__ = ["Checkup", "Finding", "check"]
