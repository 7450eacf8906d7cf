"""Click models as losses: the log-likelihood of any compiled model, for your own training loop.

import gecasmo.torch

frames = gecasmo.torch.rows(model, log)                 # what the logits belong to
loss = -gecasmo.torch.log_likelihood(model, log, {"attraction": logits}) / len(log)
loss.backward()
"""

from __future__ import annotations

from gecasmo.errors import extra

extra("torch", "gecasmo.torch", "gecasmo[torch]")

from gecasmo.torch.likelihood import Likelihood, log_likelihood, rows  # noqa: E402

__all__ = ["Likelihood", "log_likelihood", "rows"]
