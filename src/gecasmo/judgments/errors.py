"""What judgments refuse to do."""

from __future__ import annotations

from gecasmo.errors import GecasmoError


class JudgmentsError(GecasmoError, ValueError):
    """Judgments cannot be made from this model, or not be written in this way."""
