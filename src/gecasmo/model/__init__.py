"""The object a user holds: a model with its forms, its fit and everything it answers."""

from gecasmo.model.base import Model
from gecasmo.model.click_model import ClickModel
from gecasmo.model.saved_model import load

__all__ = ["ClickModel", "Model", "load"]
