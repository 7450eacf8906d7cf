"""Networks that see the page: what stands on it, and which results above were clicked.

`Torch` gives a network the features of one result. Here it gets all results of a page in their
order, and at each of them whether the one just above was clicked: never a click at the result that
it answers for, nor one below (forms/sequences.py says how that is made sure of). A coin with such a
form has a probability for each shown result that depends on how the page went so far, so a model
with it goes on from result to result: what clicks to expect when none is known is worked out by
following how pages may go (model/foretold.py).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError, extra
from gecasmo.forms import saved
from gecasmo.forms.features import ByRows, check_categorical, check_missing
from gecasmo.forms.form import Floats, Parts, as_columns
from gecasmo.forms.network_form import NetworkForm, module_is_missing
from gecasmo.forms.networks import (
    Sizes,
    as_device,
    at_hand,
    extend,
    own_randomness,
    shake,
)
from gecasmo.forms.sequences import (
    PageRecipe,
    PageTraining,
    ResultCoding,
    Sequences,
    learn_results,
    looks_ahead,
    page_logits,
)
from gecasmo.forms.torch import load_weights, weights_to_bytes

if TYPE_CHECKING:
    from torch import nn

OWN = ("gru", "attention")


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """A network that nobody changes any more, and how results are put before it."""

    coding: ResultCoding
    network: nn.Module
    lr: float
    turn: int = 0
    sequences: ByRows = field(default_factory=ByRows)


class Recurrent(NetworkForm):
    """A network behind a coin that reads the page from the top, with the clicks above.

    Fit it by `Gradient`, or by `EM`, whose M-step then is some epochs of training that end when a
    share of the pages, set apart, no longer gains.

    Parameters
    ----------
    module : "gru", "attention", torch.nn.Module or callable
        "gru" is a gated recurrent unit, "attention" looks back at all results above; both are
        saved as data. A module of your own is called with numbers (pages, places, columns), level
        numbers (pages, places, columns; 0 was never seen) and whether the result just above was
        clicked (pages, places), as far as there are such columns, and answers with a logit for
        each place. A function gets an object with `n_numeric` and `n_levels` and makes a module.
    *columns : str
        Features of results or pages: numbers are standardised, texts become levels.
    ids : str, or sequence of str and of tuples of these
        Columns of ids, each of which gets a vector: `ids=("query", "doc")`, or together,
        `ids=[("query", "doc")]`. An id that the fit has not seen is level 0.
    categorical : str or sequence of str
        Feature columns of numbers that are names of categories.
    hashed : int, optional
        Hash ids into so many vectors instead of keeping a list of them.
    size, embedding : int
        Of our own networks: numbers that are remembered, and numbers of each vector.
    causal : bool
        A module of your own promises to read downwards only, so that it is asked once for a page
        and not once for each result. That is tried out, and refused if it does not.
    epochs, lr, batch_size : int, float, int
        Of Adam in an M-step of EM; a batch has so many pages.
    weight_decay : float
        Precision of a normal prior on all weights.
    validation : float
        Share of the pages that an M-step sets apart to see when to stop; 0 for none.
    device, seed, missing
        As for `Torch`.

    Examples
    --------
    >>> from gecasmo import DBN, Recurrent
    >>> model = DBN(continuation=Recurrent("gru", "device", ids="doc"))
    """

    reads_pages = True
    key = ("result",)

    def __init__(
        self,
        module: Any,
        *columns: str,
        ids: str | Sequence[str | tuple[str, ...]] = (),
        categorical: str | Sequence[str] = (),
        hashed: int | None = None,
        size: int = 32,
        embedding: int = 8,
        causal: bool = False,
        epochs: int = 30,
        lr: float = 0.01,
        batch_size: int = 256,
        weight_decay: float = 1.0,
        validation: float = 0.1,
        device: str = "cpu",
        seed: int = 0,
        missing: str = "raise",
    ) -> None:
        if isinstance(module, type) or not (callable(module) or module in OWN):
            raise ModelError(
                f"Recurrent({module!r}): 'gru', 'attention', a torch.nn.Module or a function that "
                "makes one is wanted."
            )
        listed = [ids] if isinstance(ids, str) else list(ids)
        self.ids = tuple(each if isinstance(each, str) else tuple(each) for each in listed)
        self.id_columns = tuple((e,) if isinstance(e, str) else e for e in self.ids)
        features = tuple(columns)
        if not features and not self.ids:
            raise ModelError(
                'Recurrent takes names of columns or ids, such as Recurrent("gru", "price", '
                'ids="doc").'
            )
        if features:
            as_columns(features, "Recurrent")
        named = [name for each in self.id_columns for name in each]
        for each in self.id_columns:
            as_columns(each, "Recurrent(ids=...)")
        if len(set(self.id_columns)) < len(self.id_columns):
            raise ModelError(f"Recurrent(ids={self.ids!r}): an id is named twice.")
        whole = {"size": size, "embedding": embedding, "epochs": epochs, "batch_size": batch_size}
        whole |= {} if hashed is None else {"hashed": hashed}
        for name, value in (*whole.items(), ("seed", seed)):
            least = 0 if name == "seed" else 1
            if isinstance(value, bool) or value != int(value) or value < least:
                raise ModelError(
                    f"Recurrent({name}={value!r}): a whole number of at least {least}."
                )
        if module == "attention" and size % 2:
            raise ModelError(f"Recurrent('attention', size={size!r}): an even number is wanted.")
        if not (0 < lr < np.inf and 0 <= weight_decay < np.inf):
            raise ModelError(
                f"Recurrent(lr={lr!r}, weight_decay={weight_decay!r}): a positive learning rate "
                "and a decay that is not negative are wanted."
            )
        if not 0 <= validation < 1:
            raise ModelError(f"Recurrent(validation={validation!r}): a share from 0 to below 1.")
        self.module, self.features = module, features
        self.columns = tuple(dict.fromkeys([*features, *named]))
        self.categorical = check_categorical(categorical, features, "Recurrent")
        self.hashed = None if hashed is None else int(hashed)
        self.size, self.embedding, self.causal = int(size), int(embedding), bool(causal)
        self.recipe = PageRecipe(
            int(epochs),
            float(lr),
            int(batch_size),
            float(weight_decay),
            float(validation),
            int(seed),
        )
        self.device = str(device)
        self.missing = check_missing(missing, "Recurrent")

    def options(self) -> dict[str, Any]:
        made = vars(self) | vars(self.recipe) | {"columns": self.features}
        return {name: made[name] for name in inspect.signature(type(self)).parameters}

    @property
    def one_pass(self) -> bool:
        """Whether the network reads downwards, so that one look at a page is enough."""
        return self.causal or isinstance(self.module, str)

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> RecurrentState:
        extra("torch", "A recurrent network", "gecasmo[torch]")
        coding = learn_results(rows, self.features, self.categorical, self.id_columns, self.hashed)
        with own_randomness(self.recipe.seed, as_device(self.device)):
            network = self._network(coding)
            state = RecurrentState(coding, network, self.recipe.lr)
            self.logits(state, rows)  # refuses what cannot be; lazy layers get their shape
        self.require_causal(network, self.sequences(state, rows))
        if generator is not None:
            with own_randomness(int(generator.integers(2**31)), as_device(self.device)):
                shake(network)
        return state

    def fit(
        self, rows: Rows, heads: Floats, tails: Floats, previous: RecurrentState
    ) -> RecurrentState:
        sequences = self.sequences(previous, rows)
        training = PageTraining(sequences, heads, tails, self.recipe, self.one_pass)
        network, lr = training.improve(previous.network, previous.lr, previous.turn)
        if network is None:
            return previous
        self.require_causal(network, sequences)
        # Adam starts afresh in each M-step, so its steps are shorter each time.
        lr = max(lr / 2, self.recipe.lr / 20)
        return replace(previous, network=network, lr=lr, turn=previous.turn + 1)

    def answers(self, state: RecurrentState, rows: Rows) -> Floats:
        return page_logits(state.network, self.sequences(state, rows), self.one_pass)

    def remarks(self, state: RecurrentState, heads: Floats, tails: Floats) -> list[str]:
        constant = state.coding.features.constant
        return [f"the column '{name}' is constant, so it says nothing" for name in constant]

    def adopted(self, state: RecurrentState, rows: Rows) -> RecurrentState:
        """Keep the weights if they mean the same; new ids come after the old ones."""
        begun = self.begin(rows, None)
        old, new = state.coding.features, begun.coding.features
        same_ids = [v.columns for v in state.coding.ids] == list(self.id_columns)
        if old.numeric != new.numeric or list(old.levels) != list(new.levels) or not same_ids:
            return begun
        if any(not values.equals(old.levels[name]) for name, values in new.levels.items()):
            return begun
        ids = tuple(each.extended(rows) for each in state.coding.ids)
        coding = ResultCoding(replace(old, constant=new.constant, _known=ByRows()), ids)
        with own_randomness(self.recipe.seed, as_device(self.device)):
            network = self._network(coding)
        if not extend(network, state.network):
            return begun
        return RecurrentState(coding, network, self.recipe.lr)

    def trainable(self, state: RecurrentState, rows: Rows) -> Any:
        from gecasmo.forms.trainable import TrainablePages

        return TrainablePages(self, state, self.sequences(state, rows))

    # -- in files --------------------------------------------------------------------------------
    def to_data(self, state: RecurrentState) -> tuple[dict[str, Any], Parts]:
        coding, frames = state.coding.to_data()
        data = {
            **self.options(),
            "coding": coding,
            "module": self.module if isinstance(self.module, str) else None,
            "class": type(state.network).__name__,
            "now": state.lr,
            "turn": state.turn,
        }
        return data, {**frames, "weights": weights_to_bytes(state.network)}

    @classmethod
    def from_data(
        cls, data: dict[str, Any], parts: Any, module: Any = None
    ) -> tuple[Recurrent, RecurrentState]:
        made = data["module"] if module is None else module
        if made is None or (module is None and made not in OWN):
            raise module_is_missing(data["class"])
        extra("torch", "A saved network", "gecasmo[torch]")
        ids = [each if isinstance(each, str) else tuple(each) for each in data["ids"]]
        form = cls.from_options({**data, "ids": ids, "device": at_hand(data["device"])}, made)
        coding = ResultCoding.from_data(data["coding"], parts)
        if [v.columns for v in coding.ids] != list(form.id_columns):
            raise SavedModelError("The ids of a network are not those that it was fitted to.")
        network = form._network(coding, empty=isinstance(made, str))
        load_weights(network, parts["weights"], data["class"])
        lr = saved.number(data["now"], "The learning rate of a network", above=0)
        turn = saved.whole_number(data["turn"], "The round of a network")
        return form, RecurrentState(coding, network, lr, turn)

    # -- networks --------------------------------------------------------------------------------
    def sequences(self, state: RecurrentState, rows: Rows) -> Sequences:
        """Give the pages of rows as tensors; kept for as long as the rows are."""
        if rows not in state.sequences:
            device = as_device(self.device)
            state.sequences[rows] = Sequences(state.coding, rows, state.network, device)
        kept: Sequences = state.sequences[rows]
        return kept

    def require_causal(self, network: nn.Module, sequences: Sequences) -> None:
        """Refuse a module that promised to read downwards, and does not."""
        if self.causal and looks_ahead(network, sequences):
            raise ModelError(
                f"Recurrent({type(network).__name__}, causal=True): what this module answers at a "
                "place depends on clicks at or below it. Leave out causal=True; it is then asked "
                "once for each result, with the clicks above it only."
            )

    def _network(self, coding: ResultCoding, empty: bool = False) -> nn.Module:
        """Make a network of our own from what the user gave; if `empty`, without memory, for
        weights that a file has: sizes that a file only claims then take none."""
        import torch
        from torch import nn

        from gecasmo.forms.page_networks import NETWORKS

        n_numeric, n_levels = len(coding.features.numeric), coding.n_levels
        made: Any
        if isinstance(self.module, str):
            sizes = (n_numeric, list(n_levels.values()), self.embedding, self.size)
            with torch.device("meta" if empty else "cpu"):
                made = NETWORKS[self.module](*sizes)
        elif isinstance(self.module, nn.Module):
            made = copy.deepcopy(self.module)
        else:
            made = self.module(Sizes(n_numeric, n_levels))
        if not isinstance(made, nn.Module):
            raise ModelError(
                f"The function given to Recurrent made a {type(made).__name__}; a torch.nn.Module "
                "is wanted."
            )
        return (made if empty else made.to(as_device(self.device))).eval()
