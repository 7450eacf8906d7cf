"""Source lines that fetch the weights of all coins at a result into the array `v`, and move counts.

Slot 2 n of `v` is tails and 2 n + 1 heads of variable n of the machine. Coins that are the same
everywhere are fetched once, coins of a page once a page.
"""

from __future__ import annotations

from gecasmo.kernels.machine import Machine
from gecasmo.kernels.packing import packed_variables
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import Text, array


class Loads:
    """Fetches for one machine and plan.

    With `lifted`, rows of coins keyed by the click history are not read from codes: `l` (place of
    the last click, 0 for none) and `c` (clicks above) are loop variables, and the coin's table
    has one row per (static part of the key, history).
    """

    def __init__(self, machine: Machine, plan: Plan, lifted: bool = False) -> None:
        self.machine = machine
        self.plan = plan
        self.lifted = lifted
        self.packed = packed_variables(machine, plan)

    @property
    def n_slots(self) -> int:
        """Number of weights at a result: heads and tails of each variable."""
        return 2 * len(self.machine.variables)

    def uses(self, *keys: str) -> bool:
        """Whether some coin's rows depend on one of these parts of the click history."""
        return self.lifted and any(set(keys) & set(coin.history) for coin in self.plan.coins)

    def everywhere(self, text: Text) -> None:
        """Write the loads that serve the whole log."""
        # Zeros, since a coin of the result above is not fetched at the first result.
        text(f"v = np.zeros({max(self.n_slots, 1)})")
        for number, (coin, _, row) in enumerate(self.machine.variables):
            if self.plan.scope(self.machine, number) == "global" and number not in self.packed:
                self._fetch(text, number, coin, str(row or 0))
        if self.packed:
            with text.block(f"for k in range({2 * len(self.packed)}):"):
                text("v[PACKED[k]] = W_packed[k]")

    def constants(self) -> list[str]:
        """The slots of packed variables."""
        if not self.packed:
            return []
        return [array("PACKED", [2 * number + side for number in self.packed for side in (0, 1)])]

    def tables(self, text: Text) -> None:
        """Write which tables take the counts of a bucket."""
        for coin in range(self.machine.n_coins):
            if coin not in self.plan.packed:
                text(f"c{coin} = C{coin}[bucket >> shift{coin}]")
        if self.plan.packed:
            text("c_packed = C_packed[(bucket >> shift_packed) - (first >> shift_packed)]")

    def page(self, text: Text) -> None:
        """Write the loads that serve a page."""
        for number, (coin, _, _) in enumerate(self.machine.variables):
            if self.plan.scope(self.machine, number) == "page":
                self._fetch(text, number, coin, f"codes{self.plan.coins[coin].codes}[i]")

    def result(self, text: Text) -> None:
        """Write the loads of one result."""
        for number, (coin, lag, _) in enumerate(self.machine.variables):
            if self.plan.scope(self.machine, number) != "result":
                continue
            if self.lifted and self.plan.coins[coin].history:
                continue
            if lag:
                with text.block("if t > 0:"):
                    self._fetch(text, number, coin, self.row(coin, lag))
            else:
                self._fetch(text, number, coin, self.row(coin, lag))

    def history(self, text: Text) -> None:
        """Inside the loops over `l` and `c`: the coins keyed by the history."""
        for number, (coin, lag, _) in enumerate(self.machine.variables):
            plan = self.plan.coins[coin]
            if not (self.lifted and plan.history):
                continue
            row = self.row(coin, lag)
            for key in plan.history:
                row = f"({row}) * {_SIZE[key]} + {_VALUE[key]}"
            self._fetch(text, number, coin, row)

    def row(self, coin: int, lag: int = 0) -> str:
        """The row of a coin at result t, as an expression."""
        plan = self.plan.coins[coin]
        start = "base" if plan.history and not self.lifted else "row"
        code = f"codes{plan.codes}[{start} + t{f' - {lag}' if lag else ''}]"
        return f"np.int64(first_row{plan.codes}[i]) + {code}" if plan.based else code

    def flush(self, text: Text, scope: str) -> None:
        """Move the counts of the variables of one scope from the array `n` into the tables."""
        for number, (coin, lag, row) in enumerate(self.machine.variables):
            if self.plan.scope(self.machine, number) != scope or number in self.packed:
                continue
            if scope == "global":
                place = str(row or 0)
            elif scope == "page":
                place = f"codes{self.plan.coins[coin].codes}[i]"
            else:
                place = self.row(coin, lag)
            if lag:
                with text.block("if t > 0:"):
                    self._move(text, number, coin, place)
            else:
                self._move(text, number, coin, place)

        if scope == "global" and self.packed:
            with text.block(f"for k in range({2 * len(self.packed)}):"):
                text("c_packed[k] += n[PACKED[k]]", "n[PACKED[k]] = 0.0")

    def _move(self, text: Text, number: int, coin: int, place: str) -> None:
        text(f"k = {place}")
        for side in (0, 1):
            slot = 2 * number + side
            text(f"c{coin}[{side}, k] += n[{slot}]", f"n[{slot}] = 0.0")

    def _fetch(self, text: Text, number: int, coin: int, row: str) -> None:
        if row.isdigit():
            text(f"v[{2 * number}] = W{coin}[0, {row}]")
            text(f"v[{2 * number + 1}] = W{coin}[1, {row}]")
        else:
            text(f"k = {row}")
            text(f"v[{2 * number}] = W{coin}[0, k]")
            text(f"v[{2 * number + 1}] = W{coin}[1, k]")


_SIZE = {"last_click": "rank_size", "distance": "rank_size", "clicks_above": "count_size"}
_VALUE = {"last_click": "above", "distance": "(ranks[row + t] - above)", "clicks_above": "c"}
