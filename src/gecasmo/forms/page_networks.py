"""Networks that read a page from the top: a GRU, and one that attends to what stands above.

Only imported where PyTorch is in use. At each place they get what is known of the result there and
whether the one just above it was clicked; their answer there depends on nothing further down. They
are made of numbers alone, so that a file can say which network it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad, relu, scaled_dot_product_attention

# Places from here on share what is learned of places.
_PLACES = 64


class PageNetwork(nn.Module):
    """What both have in common: results as vectors, and a logit from a memory and the result."""

    def __init__(
        self, n_numeric: int, n_levels: Sequence[int], embedding: int, size: int, seen: int
    ) -> None:
        super().__init__()
        self.has_numbers = n_numeric > 0
        # Level 0, which is for ids that no fit has seen, stays where all ids begin: at zero.
        self.embeddings = nn.ModuleList(
            nn.Embedding(n + 1, embedding, padding_idx=0) for n in n_levels
        )
        self.places = nn.Embedding(_PLACES, embedding)
        with torch.no_grad():
            for table in (*self.embeddings, self.places):
                table.weight.mul_(0.1)
        self.width = n_numeric + (len(n_levels) + 1) * embedding
        self.answer = nn.Linear(seen + self.width, 1)

    def shown(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """What is known of each result, and its place, as vectors `[page, place]`."""
        first = inputs[0]
        places = torch.arange(first.shape[1], device=first.device).clamp(max=_PLACES - 1)
        parts = [self.places(places).expand(len(first), -1, -1)]
        if self.has_numbers:
            parts.append(inputs[0])
        if len(self.embeddings):
            levels = inputs[-1]
            parts += [table(levels[..., n]) for n, table in enumerate(self.embeddings)]
        return torch.cat(parts, dim=-1)

    def memory(self, shown: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
        """What is remembered at each place, of it and of all above it."""
        raise NotImplementedError

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Tell the logit at each place, `[page, place]`."""
        *told, above = inputs
        shown = self.shown(told or [above.unsqueeze(-1)])
        logits: torch.Tensor = self.answer(torch.cat([self.memory(shown, above), shown], dim=-1))
        return logits.squeeze(-1)


class GRUNetwork(PageNetwork):
    """A gated recurrent unit goes down the page."""

    def __init__(self, n_numeric: int, n_levels: Sequence[int], embedding: int, size: int) -> None:
        super().__init__(n_numeric, n_levels, embedding, size, size)
        self.unit = nn.GRU(self.width + 1, size, batch_first=True)

    def memory(self, shown: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
        told: torch.Tensor = self.unit(torch.cat([shown, above.unsqueeze(-1)], dim=-1))[0]
        return told


class AttentionNetwork(PageNetwork):
    """Each place attends to itself and to those above it, twice as wide in between."""

    heads = 2

    def __init__(self, n_numeric: int, n_levels: Sequence[int], embedding: int, size: int) -> None:
        super().__init__(n_numeric, n_levels, embedding, size, size)
        # A place knows what stands just above it, whether it was clicked, and which of both.
        self.enter = nn.Linear(3 * self.width + 1, size)
        self.asks = nn.Linear(size, 3 * size)
        self.gathers = nn.Linear(size, size)
        self.norm, self.last_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.widens, self.narrows = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def memory(self, shown: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
        clicked = above.unsqueeze(-1)
        before = pad(shown, (0, 0, 1, 0))[:, :-1]
        token = self.enter(torch.cat([shown, before, before * clicked, clicked], dim=-1))
        n_pages, n_places, size = token.shape
        parts = self.asks(self.norm(token)).reshape(n_pages, n_places, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, is_causal=True)
        token = token + self.gathers(found.transpose(1, 2).reshape(n_pages, n_places, size))
        told: torch.Tensor = token + self.narrows(relu(self.widens(self.last_norm(token))))
        return told


NETWORKS: dict[str, Any] = {"gru": GRUNetwork, "attention": AttentionNetwork}
