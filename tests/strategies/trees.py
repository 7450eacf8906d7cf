"""Click-model programs as small trees, and the two things that run them.

The same tree becomes a `ClickModel` (`as_model`) and an oracle's story (`as_story`), by two
interpreters that share nothing but the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gecasmo import Choice, ClickModel, Density, Normal, Parameter, choose, flip

HISTORY = ("last_click", "distance", "clicks_above")


@dataclass(frozen=True)
class Done:
    """The program ends."""


@dataclass(frozen=True)
class Flip:
    """Flip a coin and go one of two ways; with equal ways the flip means nothing."""

    coin: str
    heads: Any
    tails: Any


@dataclass(frozen=True)
class Count:
    """Flip all coins first, then ask whether exactly so many came up heads."""

    coins: tuple[str, ...]
    exactly: int
    yes: Any
    no: Any


@dataclass(frozen=True)
class Emit:
    signal: str
    then: Any


@dataclass(frozen=True)
class Set:
    attribute: str
    value: bool | int
    then: Any


@dataclass(frozen=True)
class Bump:
    """Count up to 2."""

    attribute: str
    then: Any


@dataclass(frozen=True)
class Test:
    """Ask the hidden state."""

    attribute: str
    value: bool | int
    yes: Any
    no: Any


@dataclass(frozen=True)
class Ask:
    """Ask a yes/no column of the log."""

    column: str
    yes: Any
    no: Any


@dataclass(frozen=True)
class Observe:
    """Let a number be seen, spread as a density says for a value of the hidden state."""

    column: str
    density: str
    attribute: str | None
    then: Any


@dataclass(frozen=True)
class Leave:
    then: Any


Test.__test__ = False  # type: ignore[attr-defined]  # not for pytest


@dataclass(frozen=True)
class Program:
    """Coins with their keys, hidden attributes with their first values, and three trees."""

    keys: dict[str, tuple[str, ...]]
    attributes: dict[str, bool | int]
    browse: Any
    start: Any = field(default_factory=Done)
    finish: Any = field(default_factory=Done)
    # With some, `start` first chooses a kind, and the coin "a" has rows of its own for each.
    n_kinds: int = 0
    densities: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """One result as the log has it."""

    doc: Any
    rank: int
    guards: dict[str, bool]


@dataclass(frozen=True)
class ShownPage:
    query: Any
    device: Any
    results: tuple[Shown, ...]


# -- as a model --------------------------------------------------------------------------------


def _walk(model: Any, node: Any, user: Any, result: Any) -> None:
    while not isinstance(node, Done):
        if isinstance(node, Flip):
            node = node.heads if flip(getattr(model, node.coin)) else node.tails
        elif isinstance(node, Count):
            up = sum(flip(getattr(model, coin)) for coin in node.coins)
            node = node.yes if up == node.exactly else node.no
        elif isinstance(node, Ask):
            node = node.yes if getattr(result, node.column) else node.no
        elif isinstance(node, Test):
            node = node.yes if getattr(user, node.attribute) == node.value else node.no
        elif isinstance(node, Emit):
            user.emit(node.signal)
            node = node.then
        elif isinstance(node, Set):
            setattr(user, node.attribute, node.value)
            node = node.then
        elif isinstance(node, Bump):
            setattr(user, node.attribute, min(int(getattr(user, node.attribute)) + 1, 2))
            node = node.then
        elif isinstance(node, Observe):
            given = node.attribute and getattr(user, node.attribute)
            user.observe(node.column, getattr(model, node.density), given=given)
            node = node.then
        else:
            user.leave()
            node = node.then


def as_model(program: Program) -> type[ClickModel]:
    """A model class that interprets the trees."""

    def start(self: Any, user: Any) -> None:
        for name, value in program.attributes.items():
            setattr(user, name, value)
        if program.n_kinds:
            user.kind = choose(self.kind)
        _walk(self, program.start, user, None)

    def browse(self: Any, user: Any, result: Any) -> None:
        _walk(self, program.browse, user, result)

    coins: dict[str, Any] = {
        name: Parameter(*keys) for name, keys in program.keys.items() if "[" not in name
    }
    if program.n_kinds:
        coins["kind"] = Choice(*program.keys["kind[0]"], n=program.n_kinds)
        if "a[0]" in program.keys:
            coins["a"] = Parameter(*program.keys["a[0]"], state="kind")
    coins |= {name: Density(Normal()) for name in program.densities}
    # No file has the text of this class: of a module that is not there nobody looks for it.
    own = {**coins, "start": start, "browse": browse, "__module__": "invented"}
    if program.finish != Done():
        own["finish"] = lambda self, user: _walk(self, program.finish, user, None)
    return type("Invented", (ClickModel,), own)


# -- as a story --------------------------------------------------------------------------------


_KNOWN: dict[str, Any] = {
    "query": lambda page, result, clicks: page.query,
    "device": lambda page, result, clicks: page.device,
    "doc": lambda page, result, clicks: result.doc,
    "rank": lambda page, result, clicks: result.rank,
    "last_click": lambda page, result, clicks: clicks[-1] if clicks else 0,
    "distance": lambda page, result, clicks: result.rank - (clicks[-1] if clicks else 0),
    "clicks_above": lambda page, result, clicks: len(clicks),
    "page_length": lambda page, result, clicks: len(page.results),
}


def _row(keys: tuple[str, ...], page: ShownPage, place: int, clicks: list[int]) -> tuple[Any, ...]:
    result = page.results[place]
    return tuple(_KNOWN[key](page, result, clicks) for key in keys)


def as_story(program: Program, page: ShownPage) -> Any:
    """The oracle's way of reading the same trees."""

    def tell(throw: Any) -> tuple[frozenset, ...]:
        memory = dict(program.attributes)
        clicks: list[int] = []
        out: list[frozenset] = []

        def play(tree: Any, place: int) -> tuple[set[str], bool]:
            signals: set[str] = set()
            gone = False

            def fall(coin: str) -> bool:
                if coin == "a" and program.n_kinds:
                    coin = f"a[{memory['kind']}]"
                return throw(coin, _row(program.keys[coin], page, place, clicks))

            while True:
                match tree:
                    case Done():
                        return signals, gone
                    case Flip(coin, heads, tails):
                        tree = heads if fall(coin) else tails
                    case Count(coins, exactly, yes, no):
                        fell = [fall(coin) for coin in coins]
                        tree = yes if fell.count(True) == exactly else no
                    case Emit(signal, then):
                        signals.add(signal)
                        tree = then
                    case Set(attribute, value, then):
                        memory[attribute] = value
                        tree = then
                    case Bump(attribute, then):
                        memory[attribute] = min(int(memory[attribute]) + 1, 2)
                        tree = then
                    case Test(attribute, value, yes, no):
                        tree = yes if memory[attribute] == value else no
                    case Ask(column, yes, no):
                        tree = yes if page.results[place].guards[column] else no
                    case Observe(column, density, attribute, then):
                        given = attribute and memory[attribute]
                        throw.see(column, density if given is None else f"{density}[{given!r}]")
                        tree = then
                    case Leave(then):
                        gone = True
                        tree = then

        for kind in range(program.n_kinds):
            coin = f"kind[{kind}]"
            if coin not in program.keys or throw(coin, _row(program.keys[coin], page, 0, [])):
                memory["kind"] = kind
                break
        _, gone = play(program.start, 0)
        for place, result in enumerate(page.results):
            if gone:
                out.append(frozenset())
                continue
            throw.look(place)
            signals, gone = play(program.browse, place)
            if "click" in signals:
                clicks.append(result.rank)
            out.append(frozenset(signals))
        throw.place = len(out) - 1  # what is flipped at the end is told of the last result
        signals, _ = play(program.finish, 0)
        return (*out[:-1], out[-1] | signals)

    return tell


def signals_of(tree: Any) -> set[str]:
    """The signals a tree can emit."""
    found = {tree.signal} if isinstance(tree, Emit) else set()
    for name in ("heads", "tails", "yes", "no", "then"):
        if hasattr(tree, name):
            found |= signals_of(getattr(tree, name))
    return found


def columns_of(tree: Any) -> set[str]:
    """The yes/no columns a tree asks for."""
    found = {tree.column} if isinstance(tree, Ask) else set()
    for name in ("heads", "tails", "yes", "no", "then"):
        if hasattr(tree, name):
            found |= columns_of(getattr(tree, name))
    return found


def depth_of(tree: Any) -> int:
    """The most flips on a path."""
    below = [
        depth_of(getattr(tree, name))
        for name in ("heads", "tails", "yes", "no", "then")
        if hasattr(tree, name)
    ]
    own = 1 if isinstance(tree, Flip) else len(tree.coins) if isinstance(tree, Count) else 0
    return own + max(below, default=0)
