"""`check`: what is wrong with a log, and what it can and cannot tell about a model."""

from gecasmo.checks.check import check
from gecasmo.checks.findings import Finding, LogCheck

__all__ = ["Finding", "LogCheck", "check"]
