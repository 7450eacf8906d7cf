"""Models with many states: moods of which any may follow any other, and levels of patience."""

from __future__ import annotations

from gecasmo import Choice, ClickModel, Parameter, choose, flip
from gecasmo.language import Result, User


def moods(n: int) -> type[ClickModel]:
    """Any of n moods may follow any other, with a probability of its own; then it clicks in its own
    way: mood 0 by what is shown, the others by where it is shown."""

    def start(self: ClickModel, user: User) -> None:
        user.mood = 0

    def browse(self: ClickModel, user: User, result: Result) -> None:
        user.mood = choose(getattr(self, f"after{user.mood}"))
        if flip(getattr(self, f"taste{user.mood}")):
            user.click()

    members: dict[str, object] = {"start": start, "browse": browse}
    members |= {f"after{mood}": Choice(n=n) for mood in range(n)}
    members["taste0"] = Parameter("query", "doc")
    members |= {f"taste{mood}": Parameter("rank") for mood in range(1, n)}
    return type(f"Moods{n}", (ClickModel,), members)


def patience(n: int) -> type[ClickModel]:
    """Who skips may lose patience, one of n levels; the fewer are left, the sooner somebody goes.
    A click brings all of it back."""

    def start(self: ClickModel, user: User) -> None:
        user.lost = 0

    def browse(self: ClickModel, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            user.lost = 0
        elif flip(self.hurry):
            if user.lost == n - 1 or flip(self.leaving[user.lost]):
                user.leave()
            user.lost = min(user.lost + 1, n - 1)

    members: dict[str, object] = {"start": start, "browse": browse}
    members["attraction"] = Parameter("query", "doc")
    members["hurry"] = Parameter("rank")
    members["leaving"] = [Parameter() for _ in range(n - 1)]
    return type(f"Patience{n}", (ClickModel,), members)
