"""The two kinds of models, by where their structure comes from.

A `ClickModel` is written as a program: coins, and what a person does at one result. The structure
of an `AutomatonModel` is given as an automaton: loaded from a file, or made of matrices.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from gecasmo.compiler import Automaton, trace
from gecasmo.compiler.hide import without_numbers as bare_automaton
from gecasmo.errors import ModelError
from gecasmo.forms import Densities, Family, Form, Table
from gecasmo.language import Choice, Density, Parameter, Result, User
from gecasmo.logs.views import as_view
from gecasmo.model.base import Model
from gecasmo.model.relevance import factor_named
from gecasmo.model.structured import given_states, split_forms

# Columns of what a model tells about each result; a coin gets one of its own there.
_RESULT_COLUMNS = ("session", "query", "doc", "rank", "click", "reached")


_BEGINS, _ENDS = ("", "start_"), ("", "_flipped", "_heads")
# Lists of lists of coins have an end.
_DEEPEST = 4
# What programs observe, by class.
_observed: WeakKeyDictionary[type, tuple[tuple[str, str], ...]] = WeakKeyDictionary()


class ClickModel(Model):
    """Write a click model: name its coins and say what a user does at one result.

    Examples
    --------
    >>> from gecasmo import ClickModel, Parameter, flip
    >>> class Patient(ClickModel):
    ...     attraction = Parameter("query", "doc")
    ...     patience = Parameter("rank")
    ...
    ...     def browse(self, user, result):
    ...         if flip(self.attraction):
    ...             user.click()
    ...         if not flip(self.patience):
    ...             user.leave()
    >>> Patient().automaton.n_states
    2
    """

    def __init__(self, **forms: Form | float) -> None:
        cls = type(self)
        keys = {name: parameter.keys for name, parameter in cls._parameters().items()}
        if cls.browse is ClickModel.browse:
            raise ModelError(
                f"{cls.__name__} has no browse(self, user, result): what does a user do?"
            )
        if cls.next_page is not ClickModel.next_page and not as_view(cls.view).spans_pages:
            raise ModelError(
                f"{cls.__name__} has a next_page(self, user), and reads page by page. To follow "
                'users from page to page: view = "tasks"'
            )
        observes = dict(cls._observes())
        keys |= {coin: (column, *cls._density(coin).keys) for coin, column in observes.items()}
        coins = {name: form for name, form in forms.items() if name not in cls._densities()}
        usual = {name: p.form for name, p in cls._parameters().items() if p.form is not None}
        made = usual | cls._by_coin(coins) | cls._density_forms(observes, forms)
        super().__init__(cls.__name__, keys, made, _program_text(cls))
        taken = [
            name
            for name in keys
            if hasattr(ClickModel, (own := name.partition("[")[0]))
            or own in vars(self)
            or own in _RESULT_COLUMNS
        ]
        if taken:
            raise ModelError(
                f"{cls.__name__}.{taken[0]} would hide what every model has under that name; "
                "choose another name for the coin."
            )
        columns = [f"{begin}{coin}{end}" for coin in keys for begin in _BEGINS for end in _ENDS]
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise ModelError(
                f"The coins of {cls.__name__} give two columns of its answers the name '{twice}'; "
                "rename one of them."
            )
        wrong = [name for name in self.relevance if factor_named(name, keys) is None]
        if wrong:
            raise ModelError(
                f"{cls.__name__}.relevance names '{wrong[0]}', which is not one of its coins, nor "
                "the mean of some over a choice, as 'attraction[intent]'. Its coins are: "
                f"{', '.join(keys)}."
            )

    def browse(self, user: User, result: Result) -> None:
        """What a user does at one result; every model writes its own."""
        raise NotImplementedError

    def start(self, user: User) -> None:
        """What is decided before the first result: intents, classes of users, defaults."""

    def finish(self, user: User) -> None:
        """What the whole page shows after its last result, also of users who left early: whether
        they came back, or asked again."""

    @property
    def finishes(self) -> bool:
        """Whether the program says anything after the last result."""
        return type(self).finish is not ClickModel.finish

    def next_page(self, user: User) -> None:
        """What is decided before the first result of each further page, where `view = "tasks"`.

        By default everybody looks at it who has not stopped.
        """

    @property
    def turns_pages(self) -> bool:
        """Whether the model says what happens between pages."""
        return type(self).next_page is not ClickModel.next_page

    @property
    def spans_pages(self) -> bool:
        """Whether a walk goes over several pages, so that users may leave one and see the next."""
        return as_view(type(self).view).spans_pages

    @classmethod
    def _parameters(cls) -> dict[str, Parameter]:
        """The coins, in the order they are written, those of base classes first.

        Coins in a list or dictionary are called by their place there: `coins[0]`; those of a
        choice and of a coin that has a state in its key by the value: `intent[0]`.
        """
        found: dict[str, Parameter] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                own = cls._coins_in(value, name)
                for coin in [coin for coin in found if coin.partition("[")[0] == name]:
                    if coin not in own:
                        del found[coin]  # a subclass put something else in its place
                found |= own
        for name, parameter in found.items():
            parameter.name = parameter.name or name
        return found

    @classmethod
    def _densities(cls) -> dict[str, Density]:
        """The densities, in the order they are written, those of base classes first."""
        found: dict[str, Density] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                found.pop(name, None)
                if isinstance(value, Density):
                    found[name] = value
        return found

    @classmethod
    def _density(cls, coin: str) -> Density:
        """The density that has a distribution of this name."""
        return cls._densities()[coin.partition("[")[0]]

    @classmethod
    def _observes(cls) -> tuple[tuple[str, str], ...]:
        """The densities by value of the hidden state, each with its column: only the program knows
        which values there are."""
        if not cls._densities():
            return ()
        if cls not in _observed:
            _observed[cls] = trace(cls.__new__(cls)).observes
        return _observed[cls]

    @classmethod
    def _density_forms(
        cls, observes: Mapping[str, str], given: Mapping[str, Any]
    ) -> dict[str, Form]:
        """A form for all densities of a column; `given` may have other kinds of distributions."""
        kinds: dict[str, dict[str, Family]] = {}
        keys: dict[str, tuple[str, ...]] = {}
        for coin, column in observes.items():
            name, own = coin.partition("[")[0], cls._density(coin).keys
            kind = given.get(name, cls._density(coin).family)
            if keys.setdefault(column, own) != own or column in own:
                raise ModelError(
                    f"{cls.__name__}: '{name}' is a density of '{column}' by "
                    f"{', '.join(own) or 'nothing'}; all densities of a column depend on the same "
                    "keys, which are other columns."
                )
            if not isinstance(kind, Family) or any(v is not None for v in kind.numbers().values()):
                raise ModelError(
                    f"{cls.__name__}: '{name}' is {kind!r}; a kind of distribution is wanted that "
                    "is to be learned, such as LogNormal(). Known numbers are given by "
                    f"{cls.__name__}.with_values(...)."
                )
            kinds.setdefault(column, {})[coin] = kind
        forms = {column: Densities(column, own, keys[column]) for column, own in kinds.items()}
        return {coin: forms[column] for coin, column in observes.items()}

    @property
    def densities_by_name(self) -> dict[str, Density]:
        """The densities of the class by name."""
        return self._densities()

    @classmethod
    def _by_coin(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is given for a list or dictionary of coins, coin by coin; one thing serves all."""
        coins = cls._parameters()
        found: dict[str, Any] = {}
        for name, value in given.items():
            several: Any = getattr(cls, name, None)
            own = cls._coins_in(several, name)
            parts = several.split(value) if isinstance(several, Choice) else value
            if name in coins or not own:
                found[name] = value
            elif isinstance(several, (Choice, Parameter)) and isinstance(parts, list):
                if len(parts) != len(own):
                    raise ModelError(
                        f"{cls.__name__}({name}=...): a list of {len(own)} is wanted, one for each "
                        f"of {', '.join(own)}, not of {len(parts)}."
                    )
                found |= dict(zip(own, parts, strict=True))
            elif isinstance(several, Parameter):  # by value of its state, or one thing for all
                values = list(several.coins)[: len(own)]
                is_by_value = isinstance(value, dict) and value.keys() == set(values)
                each = [value[one] if is_by_value else value for one in values]
                found |= dict(zip(own, each, strict=True))
            elif isinstance(value, list) and len(value) == len(several):
                found |= {f"{name}[{place}]": own for place, own in enumerate(value)}
            elif isinstance(value, dict) and value.keys() == getattr(several, "keys", set)():
                found |= {f"{name}[{place!r}]": own for place, own in value.items()}
            else:
                found |= dict.fromkeys(own, value)
        return found

    @classmethod
    def _coins_in(cls, value: Any, name: str, depth: int = 0) -> dict[str, Parameter]:
        """The coins of an attribute by name: itself, or those in a list, tuple or dictionary."""
        inside: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Parameter):
            if value.state is None:
                return {name: value}
            choice = getattr(cls, value.state, None)
            values = range(choice.n) if isinstance(choice, Choice) else (False, True)
            value.name = value.name or name
            inside = value.by_value(values).items()
        elif isinstance(value, (list, tuple)):
            inside = enumerate(value)
        elif isinstance(value, dict) and not name.startswith("__"):
            inside = value.items()
        found: dict[str, Parameter] = {}
        for place, own in inside if depth < _DEEPEST else ():
            found |= cls._coins_in(own, f"{name}[{place!r}]", depth + 1)
        return found

    @property
    def parameters_by_name(self) -> dict[str, Parameter]:
        """All coins of the class, also those in lists and dictionaries."""
        return self._parameters()

    def by_value(self, name: str) -> pl.DataFrame:
        """The rows of a choice, or of a coin that has a hidden state in its key, in one table.

        One line per row and value, in the column `value`. Of a choice `probability` is that of the
        value and `chosen` how often it is expected to have been chosen; of a coin there are
        `probability`, `heads` and `tails` as in `parameters`.
        """
        several: Any = getattr(type(self), name, None)
        own = self._coins_in(several, name)
        if not isinstance(several, (Choice, Parameter)) or name in own or not own:
            raise ModelError(
                f"{self.name} has no choice, and no coin with a state in its key, called '{name}'."
            )
        tables = [self.parameters[coin] for coin in own]
        if isinstance(several, Parameter):
            values = list(several.coins)[: len(tables)]
            parts = zip(values, tables, strict=True)
            return pl.concat(frame.with_columns(value=pl.lit(value)) for value, frame in parts)
        keys = list(self.keys[next(iter(own))])
        found, left = [], np.ones(len(tables[0]))  # what none of the coins before has taken
        for value, table in enumerate(tables):
            share = table["probability"].to_numpy()
            found.append(_chosen(table, keys, value, "heads", left * share))
            left = left * (1 - share)
        return pl.concat([*found, _chosen(tables[-1], keys, len(tables), "tails", left)])

    def _trace(self) -> Automaton:
        return trace(self)

    @classmethod
    def with_values(cls, **values: Any) -> Self:
        """A model from known numbers instead of a fit.

        Each coin gets a number, a dictionary by key (`{("q1", "d7"): 0.3}`; for a single key
        both `"q1"` and `("q1",)` name a row), a data frame with the key columns and
        `probability`, or a form with such values: `(Table(key="doc"), {"d7": 0.3})`. A number
        serves all rows, so a log need not have the key's columns. A coin that has a hidden state
        in its key gets one of these for all values of it, or a list or dictionary by value:
        `attraction={0: 0.8, 1: 0.2}`. A density gets a distribution,
        or a dictionary of these by value of the hidden state that it depends on; in place of each,
        a dictionary by value of its keys.
        """
        seen = {*cls._densities(), *dict(cls._observes())}
        coins = {name: value for name, value in values.items() if name not in seen}
        forms, plain = split_forms(cls.__name__, cls._by_coin(coins), cls._parameters())
        known = cls._known_densities(values)
        kinds: Any = {
            coin.partition("[")[0]: type(family)()
            for coin, given in known.items()
            for family in (given.values() if isinstance(given, Mapping) else [given])
            if isinstance(family, Family)
        }
        model = cls(**{coin: forms.get(coin, Table()) for coin in plain}, **kinds)
        plain |= known
        model.states_ = given_states(model.forms, model.declared_keys, plain)
        return model

    @classmethod
    def _known_densities(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The distributions that are given, by density and value of the hidden state."""
        found = {}
        for coin, _ in cls._observes():
            name = coin.partition("[")[0]
            given = values.get(coin, values.get(name))
            if isinstance(given, Mapping) and coin != name:
                by_coin = {cls._density(coin).coin(value): own for value, own in given.items()}
                given = by_coin.get(coin)
            if given is None:
                raise ModelError(
                    f"{cls.__name__}.with_values lacks {coin}. Distributions are given by value of "
                    f"the hidden state: {name}={{True: LogNormal(4.5, 0.8), False: ...}}."
                )
            found[coin] = given
        return found


def _program_text(cls: type[ClickModel]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        pass
    # The class of a notebook's cell has no file, but its functions know the cell.
    code = getattr(cls.browse, "__code__", None)
    lines = linecache.getlines(code.co_filename) if code is not None else []
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if code is not None and first <= code.co_firstlineno <= last:
                return textwrap.dedent("".join(lines[first - 1 : last]))
    return ""  # written in a shell: there is nothing to read it from


def _chosen(
    table: pl.DataFrame, keys: list[str], value: int, side: str, probability: Any
) -> pl.DataFrame:
    """The rows of one value of a choice."""
    return table.select(
        *keys,
        pl.lit(value).alias("value"),
        pl.Series("probability", probability),
        pl.col(side).alias("chosen"),
    )


def without_numbers(model: Model) -> Model:
    """The model of the same users, through no number of whom anybody looks; itself if nobody does.

    With the same probabilities of its coins, if it has some.
    """
    observed = dict(model.traced_automaton.observes)
    if not observed:
        return model
    coins = [coin for coin in model.forms if coin not in observed]
    keys = {coin: model.declared_keys[coin] for coin in coins}
    forms = {coin: model.forms[coin] for coin in coins}
    automaton = bare_automaton(model.traced_automaton)
    twin = AutomatonModel(automaton, keys, forms, name=model.name, program=model.program)
    twin.relevance, twin.view = model.relevance, model.view
    twin.features_ = {coin: own for coin, own in model.features_.items() if coin in keys}
    twin.report_, twin.pairs_ = model.report_, model.pairs_
    if model.states_ is not None:
        twin.states_ = {coin: model.states_[coin] for coin in coins}
    return twin


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
        observed = dict(automaton.observes)
        for coin, form in self.forms.items():
            column = form.column_of(coin)
            if column != observed.get(coin):
                raise ModelError(
                    f"{name}: '{coin}' is {'a density' if coin in observed else 'a coin'}, for "
                    f"which {form!r} is no form."
                )

    def _trace(self) -> Automaton:
        return self._given

    def with_values(self, **values: Any) -> Self:
        """A copy with known numbers, given as for `ClickModel.with_values`."""
        forms, plain = split_forms(self.name, values, self.forms)
        twin = self.copy()
        for coin, form in self.forms.items():
            twin.forms[coin] = forms.get(coin, form if form.takes_values else Table())
        twin.states_ = given_states(twin.forms, self.declared_keys, plain)
        twin.report_ = None
        return twin
