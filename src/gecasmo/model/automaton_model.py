"""A model whose structure is given as an automaton: loaded from a file, or made of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from gecasmo.compiler import Automaton
from gecasmo.forms import Form, Table
from gecasmo.model.base import Model
from gecasmo.model.given import given_states, split_forms


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
        """A copy with known numbers, given as for `ClickModel.with_values`."""
        forms, plain = split_forms(self.name, values, self.forms)
        twin = self.copy()
        for coin, form in self.forms.items():
            twin.forms[coin] = forms.get(coin, form if isinstance(form, Table) else Table())
        twin.states_ = given_states(twin.forms, self.declared_keys, plain)
        twin.report_ = None
        return twin
