"""`check`: what is wrong with a log, and what it can and cannot tell about a model."""

from gecasmo.checks.findings import Finding, LogCheck
from gecasmo.checks.log_check import check

__all__ = ["Finding", "LogCheck", "check"]
