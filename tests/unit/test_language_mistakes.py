"""Every mistake in a program has an error of its own that points at the user's line."""

from __future__ import annotations

import importlib
import linecache
import random
import re
from pathlib import Path

import pytest

from gecasmo import DBN, ClickModel, Parameter, flip
from gecasmo.errors import GecasmoError, ModelError


def error_of(model: type[ClickModel]) -> str:
    """What compiling says."""
    with pytest.raises(ModelError) as caught:
        _ = model().automaton
    return str(caught.value)


def assert_points_at(message: str, text: str) -> None:
    """The message begins with this file, the number of the line and its text."""
    found = re.match(r"(\S+), line (\d+), in (.+)\n {6}(.*)\n", message)
    assert found is not None, message
    file, line, _, shown = found.groups()
    assert file == Path(__file__).name
    assert shown == linecache.getline(__file__, int(line)).strip()
    assert text in shown


class OneCoin(ClickModel):
    """Browses as each test says."""

    coin = Parameter("doc")


def browsing(action) -> type[ClickModel]:
    """A model that flips its coin and does something at each result."""

    class Acting(ClickModel):
        coin = Parameter("doc")

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
            action(user, result)

    return Acting


# -- flip ------------------------------------------------------------------------------------------
def test_flip_of_a_number() -> None:
    message = error_of(browsing(lambda user, result: flip(0.3)))
    assert_points_at(message, "flip(0.3)")
    assert "flip() takes a Parameter of the model, not a number." in message
    assert 'Perhaps: patience = Parameter("rank") in the class, then flip(self.patience)' in message


def test_flip_of_a_text() -> None:
    message = error_of(browsing(lambda user, result: flip("coin")))
    assert_points_at(message, 'flip("coin")')
    assert "takes a Parameter of the model, not 'coin'" in message


def test_flip_of_another_models_parameter() -> None:
    message = error_of(browsing(lambda user, result: flip(DBN.attraction)))
    assert_points_at(message, "flip(DBN.attraction)")
    assert "Parameter('query', 'doc'), which is not a Parameter of this model" in message
    assert "Its parameters are: coin." in message


def test_a_parameter_of_the_same_name_is_still_another_one() -> None:
    message = error_of(browsing(lambda user, result: flip(OneCoin.coin)))
    assert_points_at(message, "flip(OneCoin.coin)")


def test_flip_outside_of_a_program() -> None:
    with pytest.raises(ModelError) as caught:
        flip(DBN.attraction)
    message = str(caught.value)
    assert_points_at(message, "flip(DBN.attraction)")
    assert "only works inside the browse or start program" in message
    assert "model.simulate(pages)" in message


def test_a_flip_after_a_failed_trace_is_outside_again() -> None:
    error_of(browsing(lambda user, result: flip(0.3)))
    with pytest.raises(ModelError, match="only works inside"):
        flip(DBN.attraction)


def test_a_coin_as_a_truth_value() -> None:
    class Unflipped(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if self.coin:  # meant: flip
                user.click()

    message = error_of(Unflipped)
    assert_points_at(message, "if self.coin:")
    assert "The Parameter 'coin' was used as a truth value" in message
    assert "if flip(self.coin): ..." in message


# -- user ------------------------------------------------------------------------------------------
def test_an_attribute_never_set() -> None:
    message = error_of(browsing(lambda user, result: user.tired))
    assert_points_at(message, "user.tired")
    assert "user.tired was never set on this path." in message
    assert "Perhaps: def start(self, user): user.tired = False" in message


def test_an_attribute_set_on_one_path_only() -> None:
    class Sometimes(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
                user.tired = True
            if user.tired:
                user.leave()

    assert_points_at(error_of(Sometimes), "if user.tired:")


@pytest.mark.parametrize("value", [0.5, [1], {"a": 1}, {1}, (1, 2), object(), b"x"])
def test_a_state_that_cannot_be_told_apart(value: object) -> None:
    def act(user, result):
        user.memory = value

    message = error_of(browsing(act))
    assert_points_at(message, "user.memory = value")
    assert f"user.memory is set to {value!r}" in message
    assert "booleans, small whole numbers, texts and None" in message


def test_a_guard_is_no_state_either() -> None:
    def act(user, result):
        user.memory = result.is_ad

    assert_points_at(error_of(browsing(act)), "user.memory = result.is_ad")


def test_a_huge_number() -> None:
    def act(user, result):
        user.memory = 2**40

    message = error_of(browsing(act))
    assert_points_at(message, "user.memory = 2**40")
    assert "too large for a hidden state" in message


@pytest.mark.parametrize("name", ["click", "emit", "leave", "_state", "_private", "__class__"])
def test_reserved_names_of_the_user(name: str) -> None:
    def act(user, result):
        setattr(user, name, True)

    message = error_of(browsing(act))
    assert_points_at(message, "setattr(user, name, True)")
    assert f"user.{name} is taken; choose another name for the hidden state." in message


def test_deleting_what_is_not_there() -> None:
    def act(user, result):
        del user.tired

    message = error_of(browsing(act))
    assert_points_at(message, "del user.tired")
    assert "user.tired was never set." in message


@pytest.mark.parametrize("signal", ["", None, 3])
def test_a_signal_needs_a_name(signal: object) -> None:
    message = error_of(browsing(lambda user, result: user.emit(signal)))
    assert_points_at(message, "user.emit(signal)")
    assert f"not {signal!r}" in message


@pytest.mark.parametrize("action", [lambda user: user.click(), lambda user: user.emit("purchase")])
def test_nothing_can_be_clicked_in_start(action) -> None:
    class Early(ClickModel):
        coin = Parameter()

        def start(self, user):
            action(user)

        def browse(self, user, result):
            flip(self.coin)

    message = error_of(Early)
    assert_points_at(message, "user")
    assert "there is nothing to click on yet" in message


# -- result ----------------------------------------------------------------------------------------
def test_a_result_cannot_be_changed() -> None:
    def act(user, result):
        result.is_ad = True

    message = error_of(browsing(act))
    assert_points_at(message, "result.is_ad = True")
    assert "result.is_ad cannot be set: a result is observed." in message
    assert "user.is_ad = ..." in message


USES = {
    "==": lambda x: x == 1,
    "!=": lambda x: x != 1,
    "<": lambda x: x < 1,
    "<=": lambda x: x <= 1,
    ">": lambda x: x > 1,
    ">=": lambda x: x >= 1,
    "+": lambda x: x + 1,
    "1 +": lambda x: 1 + x,
    "-": lambda x: x - 1,
    "*": lambda x: 2 * x,
    "/": lambda x: x / 2,
    "//": lambda x: x // 2,
    "%": lambda x: x % 2,
    "**": lambda x: x**2,
    "-x": lambda x: -x,
    "+x": lambda x: +x,
    "abs": abs,
    "&": lambda x: x & 1,
    "|": lambda x: x | 1,
    "^": lambda x: x ^ 1,
    "^ from the right": lambda x: 1 ^ x,
    "~": lambda x: ~x,
    "<<": lambda x: 1 << x,
    "int": int,
    "float": float,
    "round": round,
    "index": lambda x: [1, 2][x],
    "range": range,
    "len": len,
    "iterate": list,
    "in": lambda x: 1 in x,
    "among": lambda x: x in (1, 2),
    "item": lambda x: x[0],
    "call": lambda x: x(),
    "hash": lambda x: {x: 1},
    "str": str,
    "format": lambda x: f"{x}",
    "format with a width": lambda x: f"{x:>3}",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_column_can_only_be_asked_yes_or_no(use) -> None:
    message = error_of(browsing(lambda user, result: use(result.price)))
    assert_points_at(message, "")  # the line of `use`, or the one that calls a builtin
    assert "result.price is known to the log, not to the program" in message
    assert 'Parameter("price")' in message


# -- the program as a whole ------------------------------------------------------------------------
def test_chance_from_elsewhere() -> None:
    random.seed(1)

    class Dice(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
            for _ in range(20):
                user.mood = random.random() < 0.5
                if user.mood:
                    flip(self.coin)

    message = error_of(Dice)
    assert_points_at(message, "flip(self.coin)")
    assert "did something else when it was run again with the same flips" in message
    assert "All chance must come from flip()" in message


def test_chance_without_any_flip_after_it() -> None:
    class Moody(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            flip(self.coin)
            user.mood = random.randrange(10**9)

    assert "did something else" in error_of(Moody)


def test_something_remembered_on_the_model() -> None:
    class Counter(ClickModel):
        coin = Parameter()
        seen = 0

        def browse(self, user, result):
            self.seen += 1
            if flip(self.coin):
                user.click()
            user.is_odd = self.seen % 2 == 1

    message = error_of(Counter)
    assert_points_at(message, "if flip(self.coin):")
    assert "nothing may be remembered outside of user attributes" in message


def test_a_start_that_is_not_deterministic() -> None:
    class Start(ClickModel):
        coin = Parameter()

        def start(self, user):
            user.mood = random.randrange(10**9)

        def browse(self, user, result):
            flip(self.coin)

    message = error_of(Start)
    assert "did something else" in message
    assert "in start" in message


def test_too_many_states() -> None:
    class Counting(ClickModel):
        coin = Parameter()

        def start(self, user):
            user.results = 0

        def browse(self, user, result):
            flip(self.coin)
            user.results += 1

    message = error_of(Counting)
    assert_points_at(message, "flip(self.coin)")
    assert "more than 4,096 hidden states; the last one was results=4096" in message
    assert "needs a bound" in message


def test_exactly_as_many_states_as_allowed() -> None:
    class Counting(ClickModel):
        coin = Parameter()

        def start(self, user):
            user.results = 1

        def browse(self, user, result):
            flip(self.coin)
            user.results = min(user.results + 1, 4096)

    assert Counting().traced_automaton.n_states == 4096


def test_too_many_flips_on_a_path() -> None:
    class Restless(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            while flip(self.coin):
                pass

    message = error_of(Restless)
    assert_points_at(message, "while flip(self.coin):")
    assert "more than 64 flips" in message


def test_exactly_as_many_flips_as_allowed() -> None:
    class Restless(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            all(flip(self.coin) for _ in range(64))

    edges = Restless().traced_automaton.edges
    assert max(len(edge.literals) for edge in edges) == 64


def test_too_many_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = importlib.import_module("gecasmo.compiler.trace")
    assert trace.MAX_PATHS == 100_000
    monkeypatch.setattr(trace, "MAX_PATHS", 1_000)  # the same code, a hundred times faster

    class Wide(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            for _ in range(10):
                flip(self.coin)

    message = error_of(Wide)
    assert_points_at(message, "flip(self.coin)")
    assert "more than 1,000 paths in all" in message


def test_a_parameter_never_flipped() -> None:
    class Idle(ClickModel):
        coin = Parameter()
        spare = Parameter("doc")

        def browse(self, user, result):
            if flip(self.coin):
                user.click()

    message = error_of(Idle)
    assert "Idle never flips spare." in message
    assert "Perhaps: flip(self.spare) in browse; else remove the Parameter." in message


def test_no_browse() -> None:
    with pytest.raises(ModelError, match=r"OneCoin has no browse\(self, user, result\)"):
        OneCoin()


def test_a_generator_is_no_program() -> None:
    class Lazy(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            yield flip(self.coin)

    assert "Lazy.browse must be a plain function, without yield or async." in error_of(Lazy)


def test_an_async_start_is_no_program() -> None:
    class Lazy(ClickModel):
        coin = Parameter()

        async def start(self, user):
            user.a = 1

        def browse(self, user, result):
            flip(self.coin)

    assert "Lazy.start must be a plain function" in error_of(Lazy)


def test_the_program_itself_fails() -> None:
    message = error_of(browsing(lambda user, result: 1 / 0))
    assert_points_at(message, "1 / 0")
    assert "The program raised ZeroDivisionError: division by zero" in message


def test_a_failure_deep_in_a_library_points_at_the_users_line() -> None:
    import json

    message = error_of(browsing(lambda user, result: json.loads("{")))
    assert_points_at(message, 'json.loads("{")')
    assert "JSONDecodeError" in message


def test_a_browse_with_other_arguments() -> None:
    class Short(ClickModel):
        coin = Parameter()

        def browse(self, user):
            flip(self.coin)

    assert "TypeError" in error_of(Short)


def test_all_errors_are_of_one_family() -> None:
    with pytest.raises(GecasmoError):
        OneCoin()
    with pytest.raises(ValueError, match="browse"):
        OneCoin()


# -- declarations ----------------------------------------------------------------------------------
def test_a_key_named_twice() -> None:
    with pytest.raises(ModelError, match="A key is named twice: doc, doc"):
        Parameter("doc", "doc")


@pytest.mark.parametrize("key", [1, "", None, ("query", "doc")])
def test_a_key_is_a_name(key: object) -> None:
    with pytest.raises(ModelError, match="A key is the name of a column"):
        Parameter(key)  # type: ignore[arg-type]


TAKEN = ["fit", "parameters", "name", "keys", "browse", "save", "relevance", "click", "reached"]


@pytest.mark.parametrize("name", TAKEN)
def test_a_coin_cannot_take_the_name_of_a_method(name: str) -> None:
    def browse(self, user, result):
        flip(getattr(type(self), name))

    body = {"coin": Parameter(), "browse": browse, name: Parameter("doc")}
    with pytest.raises(ModelError, match=f"{name}.*another name"):
        type("Clash", (ClickModel,), body)()


@pytest.mark.parametrize("key", ["probability", "heads", "tails"])
def test_a_key_cannot_take_the_name_of_a_column_of_the_table(key: str) -> None:
    with pytest.raises(ModelError, match="rename that column"):
        Parameter(key)


def test_relevance_names_coins() -> None:
    class Odd(DBN):
        relevance = ("attraction", "beauty")

    with pytest.raises(ModelError) as caught:
        Odd()
    assert "Odd.relevance names 'beauty', which is not one of its coins" in str(caught.value)
    assert "attraction, satisfaction, continuation" in str(caught.value)
