"""Pages as sequences: what networks that read pages are called with, and how they are trained.

Whatever a network does with its inputs, it never gets a click at or below the result that it
answers for. Our own networks read downwards and get clicks by one place late. Of any other network
nobody knows which way it reads, so it is asked once for each result, each time with no click from
there on; unless the user says that it reads downwards, which is then tried out. Pages are put
together by their length: nothing is ever padded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import key_hashes, match
from gecasmo.encoding.rows import RowPages, Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms import saved
from gecasmo.forms.features import FeatureCoding, learn_coding
from gecasmo.forms.form import Bools, Floats
from gecasmo.forms.linear import binomial_log_likelihood
from gecasmo.forms.networks import FAR, is_finite, number_type, one_thread, own_randomness, squares

if TYPE_CHECKING:
    import torch
    from torch import nn

Integers = NDArray[np.int64]

# Results that a network answers for in one go.
_AT_ONCE = 32_768
# Logits that differ by more than this were made from different clicks.
_MOVED = 1e-5


# -- ids as numbers ----------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The ids in some columns by number, from 1; 0 is for those that no fit has seen.

    Hashed, an id has the number of one of so many buckets, which it shares with others; then none
    is unseen.
    """

    columns: tuple[str, ...]
    ids: pl.DataFrame | None
    buckets: int = 0

    @classmethod
    def learn(cls, rows: Rows, columns: tuple[str, ...], hashed: int | None) -> Vocabulary:
        """Number the ids of the rows of a fit, or hash them."""
        if hashed is not None:
            return cls(columns, None, hashed)
        return cls(columns, rows.features(columns).unique(maintain_order=True))

    def __len__(self) -> int:
        return self.buckets if self.ids is None else len(self.ids)

    @property
    def name(self) -> str:
        """Its columns, as those who make a module are told how many ids there are."""
        return ", ".join(self.columns)

    def numbers(self, rows: Rows) -> Integers:
        """Tell the number of the id of each row."""
        frame = rows.features(self.columns)
        if self.ids is None:
            return (key_hashes(frame) % np.uint64(self.buckets)).astype(np.int64) + 1
        return match(frame, self.ids, self.columns) + 1

    def extended(self, rows: Rows) -> Vocabulary:
        """The same, with ids of these rows that are new after the others."""
        if self.ids is None:
            return self
        fresh = rows.features(self.columns).filter(pl.Series(self.numbers(rows) == 0))
        fresh = fresh.unique(maintain_order=True).cast(dict(self.ids.schema))  # type: ignore[arg-type]
        return Vocabulary(self.columns, pl.concat([self.ids, fresh]))


@dataclass(frozen=True, eq=False)
class ResultCoding:
    """How results become numbers: feature columns as any network has them, and ids."""

    features: FeatureCoding
    ids: tuple[Vocabulary, ...]

    @property
    def n_levels(self) -> dict[str, int]:
        """How many levels each categorical column, and each id, has."""
        return self.features.n_levels | {each.name: len(each) for each in self.ids}

    def known(self, rows: Rows) -> Bools:
        """Tell of which rows every level and every id was there in the fit."""
        known = self.features.known(rows)
        for each in self.ids:
            known &= each.numbers(rows) > 0
        return known

    def to_data(self) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """Describe the coding by JSON and frames."""
        data, frames = self.features.to_data()
        data["ids"] = [{"columns": list(v.columns), "buckets": v.buckets} for v in self.ids]
        for number, each in enumerate(self.ids):
            if each.ids is not None:
                frames[f"ids_{number}"] = each.ids
        return data, frames

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> ResultCoding:
        """Make what `to_data` described."""
        vocabularies = []
        for number, told in enumerate(data["ids"]):
            columns = tuple(told["columns"])
            buckets = saved.whole_number(told["buckets"], "The number of buckets of ids")
            ids = None
            if not buckets:
                ids = parts[f"ids_{number}"]
                saved.columns(ids, list(columns), "the ids of a network")
                if ids.select(columns).is_duplicated().any():
                    raise SavedModelError(f"An id by {', '.join(columns)} occurs twice.")
            vocabularies.append(Vocabulary(columns, ids, buckets))
        return cls(FeatureCoding.from_data(data, parts), tuple(vocabularies))


def learn_results(
    rows: Rows,
    columns: tuple[str, ...],
    categorical: tuple[str, ...],
    ids: tuple[tuple[str, ...], ...],
    hashed: int | None,
) -> ResultCoding:
    """Learn means, levels and ids over the rows of a fit."""
    features = learn_coding(rows, columns, categorical)
    return ResultCoding(features, tuple(Vocabulary.learn(rows, each, hashed) for each in ids))


# -- pages as tensors --------------------------------------------------------------------------
class Sequences:
    """The rows of a coin as pages that a network can read.

    `told` are numbers and levels `[row, column]`, as far as there are any; `above` says of each row
    whether the result above it was clicked.
    """

    def __init__(self, coding: ResultCoding, rows: Rows, network: nn.Module, device: Any) -> None:
        import torch

        pages = rows.pages or RowPages.apart(len(rows))
        self.pages, self.n_rows = pages, len(rows)
        self.lengths = np.diff(pages.start)
        self.page_of_row = np.empty(self.n_rows, np.int64)
        self.page_of_row[pages.rows] = np.repeat(np.arange(len(self.lengths)), self.lengths)
        above = np.empty(self.n_rows, bool)
        above[pages.rows] = pages.above
        coded = coding.features.apply(rows)
        levels = [*(each + 1 for each in coded.levels), *(v.numbers(rows) for v in coding.ids)]
        dtype = number_type(network)
        self.told: list[torch.Tensor] = []
        if coded.numeric.shape[1]:
            self.told.append(torch.as_tensor(coded.numeric, dtype=dtype).to(device))
        if levels:
            self.told.append(torch.as_tensor(np.stack(levels, axis=1)).to(device))
        self.above = torch.as_tensor(above, dtype=dtype).to(device)

    @property
    def n_pages(self) -> int:
        """Number of pages; some may be empty."""
        return len(self.lengths)

    def tables(self, pages: Integers, at_once: int = _AT_ONCE) -> Iterator[Integers]:
        """The rows of some pages `[page, place]`, those of one length together."""
        order = pages[np.argsort(self.lengths[pages], kind="stable")]
        for length in np.unique(self.lengths[order]).tolist():
            same = order[self.lengths[order] == length]
            step = max(1, at_once // max(length, 1))
            for first in range(0, len(same) if length else 0, step):
                starts = self.pages.start[same[first : first + step]]
                yield self.pages.rows[starts[:, None] + np.arange(length)]

    def inputs(self, rows: Any) -> tuple[torch.Tensor, ...]:
        """What a network is called with for the rows `[page, place]`."""
        import torch

        where = torch.as_tensor(rows).to(self.above.device)
        return (*(each[where] for each in self.told), self.above[where])


def call_pages(network: nn.Module, inputs: tuple[torch.Tensor, ...], one_pass: bool) -> Any:
    """Ask for a logit at each place of pages of one length, `[page, place]`."""
    if one_pass:
        return _call(network, inputs)
    *told, above = inputs
    n_pages, n_places = above.shape
    # Each page once for each of its results, with no click but those above that result.
    many = [each.repeat_interleave(n_places, dim=0) for each in told]
    masked = above.repeat_interleave(n_places, dim=0).reshape(n_pages, n_places, n_places).tril()
    answer = _call(network, (*many, masked.reshape(n_pages * n_places, n_places)))
    return answer.reshape(n_pages, n_places, n_places).diagonal(dim1=1, dim2=2)


def _call(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    import torch

    shape = tuple(inputs[-1].shape)
    shapes = ", ".join(f"{tuple(each.shape)} {each.dtype}" for each in inputs)
    try:
        answer = network(*inputs)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"The module cannot be called with {shapes}: {error}. It gets numbers and levels "
            "(pages, places, columns), as far as there are columns of each kind, and then the "
            "clicks just above (pages, places); levels count from 1, and 0 was never seen."
        ) from error
    if not isinstance(answer, torch.Tensor) or not answer.is_floating_point():
        raise ModelError(
            f"The module answers with a {type(answer).__name__}; a tensor with a logit for each "
            "place is wanted."
        )
    if tuple(answer.shape) not in (shape, (*shape, 1)):
        raise ModelError(
            f"The module answers pages of shape {shape} with a tensor of shape "
            f"{tuple(answer.shape)}; one logit per place is wanted."
        )
    return answer.reshape(shape)


def page_logits(network: nn.Module, sequences: Sequences, one_pass: bool) -> Floats:
    """Tell the logit of every row, within bounds, as a network does when it is not learning."""
    import torch

    found = np.zeros(sequences.n_rows)
    with torch.no_grad(), one_thread(0):
        for rows in sequences.tables(np.arange(sequences.n_pages)):
            answer = call_pages(network, sequences.inputs(rows), one_pass)
            found[rows] = answer.cpu().double().numpy()
    return np.clip(found, -FAR, FAR)


def looks_ahead(network: nn.Module, sequences: Sequences, n_pages: int = 8) -> bool:
    """Whether an answer moves when a click at that place or below does, on some pages."""
    import torch

    chosen = np.argsort(-sequences.lengths, kind="stable")[:n_pages]
    with torch.no_grad():
        for rows in sequences.tables(chosen):
            *told, above = sequences.inputs(rows)
            before = _call(network, (*told, above))
            for place in range(rows.shape[1] - 1):
                other = above.clone()
                other[:, place + 1 :] = 1 - other[:, place + 1 :]
                moved = _call(network, (*told, other)) - before
                if float(moved[:, : place + 1].abs().max()) > _MOVED:
                    return True
    return False


# -- training ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class PageRecipe:
    """How a network that reads pages is trained in an M-step."""

    epochs: int
    lr: float
    batch_size: int
    weight_decay: float
    validation: float
    seed: int


class Reached(NamedTuple):
    """What an M-step looks at: its objective on all pages, and that of pages set apart."""

    objective: float
    apart: float


# Gains smaller than these, relative to what there is: of pages set apart not worth an epoch, and of
# the objective perhaps rounding.
_GAIN, _ROUNDING = 1e-4, 1e-10
_PATIENCE = 2
_FEWEST = 20


class PageTraining:
    """The M-step of a network that reads pages: expected heads and tails of its rows.

    A share of the pages is set apart, the same in every M-step: as soon as these no longer gain,
    the network has learned what there is to learn, and EM comes to its end.
    """

    def __init__(
        self, sequences: Sequences, heads: Floats, tails: Floats, recipe: PageRecipe, one_pass: bool
    ) -> None:
        self.sequences, self.heads, self.tails = sequences, heads, tails
        self.recipe, self.one_pass = recipe, one_pass
        used = np.zeros(sequences.n_pages, bool)
        used[sequences.page_of_row[heads + tails > 0]] = True
        pages = np.random.default_rng(recipe.seed).permutation(sequences.n_pages)
        pages = pages[used[pages]]
        n_apart = int(len(pages) * recipe.validation) if len(pages) >= _FEWEST else 0
        self.apart, self.learned = pages[:n_apart], pages[n_apart:]
        self.is_apart = np.zeros(sequences.n_pages, bool)
        self.is_apart[self.apart] = True

    def reached(self, network: nn.Module) -> Reached:
        """Look at a network."""
        logits = page_logits(network, self.sequences, self.one_pass)
        if not np.all(np.isfinite(logits)):
            return Reached(-np.inf, -np.inf)
        apart = self.is_apart[self.sequences.page_of_row]
        sums = [
            binomial_log_likelihood(self.heads[of], self.tails[of], logits[of])
            for of in (~apart, apart)
        ]
        penalty = -0.5 * self.recipe.weight_decay * squares(network)
        return Reached(sum(sums) + penalty, sums[1])

    def improve(self, start: nn.Module, lr: float, turn: int) -> tuple[nn.Module | None, float]:
        """Look for a better network: itself, or None, and the length of the steps it took."""
        if not len(self.learned):
            return None, lr
        first = self.reached(start)
        seed = int(np.random.default_rng([self.recipe.seed, turn]).integers(2**62))
        with own_randomness(seed, self.sequences.above.device), one_thread(0):
            # Steps that are too long show at once; later M-steps have shorter ones anyway.
            for step in (lr, lr / 10) if turn == 0 else (lr,):
                found = self._epochs(start, step, first, np.random.default_rng(seed))
                if found is not None:
                    return found, step
        return None, lr

    def _epochs(
        self, start: nn.Module, lr: float, first: Reached, generator: np.random.Generator
    ) -> nn.Module | None:
        import torch

        network = copy.deepcopy(start)
        optimizer = torch.optim.Adam([w for w in network.parameters() if w.requires_grad], lr=lr)
        best, highest, since = None, first, 0
        for _ in range(self.recipe.epochs):
            self._epoch(network, optimizer, generator)
            if not is_finite(network):
                break
            here = self.reached(network)
            is_higher = _gains(here.objective, first.objective, _ROUNDING)
            if is_higher and self._is_better(here, highest):
                best, highest, since = copy.deepcopy(network), here, 0
            else:
                since += 1
                if since >= _PATIENCE:
                    break
        return best

    def _is_better(self, here: Reached, than: Reached) -> bool:
        if not len(self.apart):
            return _gains(here.objective, than.objective, _GAIN)
        return _gains(here.apart, than.apart, _GAIN)

    def _epoch(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, generator: np.random.Generator
    ) -> None:
        """Go through all pages once."""
        import torch
        from torch.nn.functional import softplus

        flips = float((self.heads + self.tails).sum())
        shuffled = generator.permutation(self.learned)
        n_batches = -(-len(shuffled) // self.recipe.batch_size)
        device = self.sequences.above.device
        for pages in np.array_split(shuffled, n_batches):
            network.train(len(pages) > 1)
            loss: Any = torch.zeros((), device=device)
            for rows in self.sequences.tables(pages):
                logits = call_pages(network, self.sequences.inputs(rows), self.one_pass)
                heads, tails = (
                    torch.as_tensor(side[rows]).to(device, logits.dtype)
                    for side in (self.heads, self.tails)
                )
                loss = loss + (heads * softplus(-logits) + tails * softplus(logits)).sum()
            # Per flip of an average batch, so that the step does not depend on the log's size.
            loss = loss * (len(shuffled) / (flips * len(pages)))
            if self.recipe.weight_decay:
                decay = sum(weight.pow(2).sum() for weight in network.parameters())
                loss = loss + 0.5 * self.recipe.weight_decay / flips * decay
            if not loss.requires_grad:
                raise ModelError("What the module answers does not depend on its weights.")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()


def _gains(value: float, over: float, least: float) -> bool:
    return bool(np.isfinite(value) and value > over + least * abs(over))
