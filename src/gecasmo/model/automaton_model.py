"""A model whose structure is given as an automaton: loaded from a file, or made of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from gecasmo.compiler import Automaton
from gecasmo.errors import ModelError
from gecasmo.forms import Form, Table
from gecasmo.model.base import Model


class AutomatonModel(Model):
    """A model without a program.

    Parameters
    ----------
    automaton : Automaton
    keys : the key columns of each coin
    forms : the form of each coin; `Table()` where none is given
    """

    def __init__(
        self,
        automaton: Automaton,
        keys: Mapping[str, tuple[str, ...]],
        forms: Mapping[str, Form | float] | None = None,
        *,
        name: str = "AutomatonModel",
        program: str = "",
    ) -> None:
        ordered = {parameter: tuple(keys[parameter]) for parameter in automaton.parameters}
        super().__init__(name, ordered, forms or {}, program)
        self._given = automaton

    def _trace(self) -> Automaton:
        return self._given

    def with_values(self, **values: Any) -> Self:
        """A copy with known numbers: a number, a dictionary by key or a frame for each coin."""
        missing = [name for name in self.forms if name not in values]
        if missing:
            raise ModelError(f"{self.name}.with_values lacks {', '.join(missing)}.")
        self._check_names(values)
        twin = self.copy()
        twin.states_ = {}
        for name, value in values.items():
            form = self.forms[name] if isinstance(self.forms[name], Table) else Table()
            assert isinstance(form, Table)
            twin.forms[name] = form
            twin.states_[name] = form.given(value, self.declared_keys[name], name)
        twin.report_ = None
        return twin
