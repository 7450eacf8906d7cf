"""The two things a program talks to: the user who browses, and the result being looked at."""

from __future__ import annotations

from typing import Any, NoReturn

from gecasmo.language.density import Density
from gecasmo.language.flip import Chooser, present, running
from gecasmo.language.place import mistake

_ALLOWED = (bool, int, str, type(None))
_LARGEST_INT = 2**31
_TAKEN_SIGNALS = ("session", "query", "doc", "rank", "weight", "reached")


class User:
    """The person in front of the page. Attributes set on it survive to the next result.

    `click()` and `emit(signal)` are observed; attributes are the hidden state; `leave()` means
    that nothing below is looked at, `stop()` that nothing on further pages is, either.
    """

    def __init__(self, state: dict[str, Any], at_start: bool = False, at_end: bool = False) -> None:
        object.__setattr__(self, "_state", dict(state))
        object.__setattr__(self, "_signals", set())
        object.__setattr__(self, "_observed", set())
        object.__setattr__(self, "_has_left", False)
        object.__setattr__(self, "_has_stopped", False)
        object.__setattr__(self, "_at_start", at_start)
        object.__setattr__(self, "_at_end", at_end)
        present.set(self)

    def click(self) -> None:
        """Click on the result."""
        self.emit("click")

    def emit(self, signal: str) -> None:
        """Give an observed yes/no signal, such as "purchase"; twice is the same as once."""
        if not isinstance(signal, str) or not signal:
            raise mistake(f"A signal is named by a text such as 'purchase', not {signal!r}.")
        if signal in _TAKEN_SIGNALS or signal.startswith("*"):
            raise mistake(f"'{signal}' cannot be a signal: it has another meaning in every log.")
        if self._at_start:
            raise mistake(
                "start() and next_page() run before the first result: there is nothing to click on "
                "yet."
            )
        if self._at_end and signal == "click":
            raise mistake(
                "finish() runs after the last result: there is nothing to click on any more. It "
                'tells of the whole page: user.emit("asked_again")'
            )
        self._signals.add(signal)

    def observe(self, column: str, density: Density, given: Any = None) -> None:
        """Let a number be seen, such as how long a result was read: a column of the log.

        Parameters
        ----------
        column : str
            Where the log has it. Null means that it was not recorded, which tells nothing.
        density : Density
            How such numbers are spread; a class attribute, beside the coins.
        given : bool, int, str or None
            A hidden state that it depends on: each value has a distribution of its own.
        """
        if not isinstance(column, str) or not column:
            raise mistake(f"A column is named by a text such as 'dwell', not {column!r}.")
        if column in (*_TAKEN_SIGNALS, "click") or not column.isprintable():
            raise mistake(f"'{column}' cannot be observed: it has another meaning in every log.")
        if not isinstance(density, Density):
            raise mistake(
                f"observe() takes a Density of the model, not {density!r}.\n"
                f'  Perhaps: reading = Density(LogNormal()) in the class, then observe("{column}", '
                "self.reading)"
            )
        if not isinstance(given, _ALLOWED):
            raise mistake(
                f"observe(given={given!r}): a hidden state is wanted, which is yes or no, a small "
                "whole number, a text or None."
            )
        if self._at_start or self._at_end:
            raise mistake(
                "observe() tells of the result that is looked at, so it belongs into browse()."
            )
        if column in self._observed:
            raise mistake(f"'{column}' is observed twice at one result, which has one value of it.")
        self._observed.add(column)
        chooser = running.get()
        assert chooser is not None  # somebody runs the program
        chooser.observe(column, density, given)

    def leave(self) -> None:
        """Leave the page: no result below is examined.

        Where a walk goes over several pages (`view = "tasks"`), the user comes back on the next.
        """
        object.__setattr__(self, "_has_left", True)

    def stop(self) -> None:
        """Look at nothing any more, on this page and on further ones."""
        object.__setattr__(self, "_has_stopped", True)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(User, name):
            raise mistake(f"user.{name} is taken; choose another name for the hidden state.")
        if not isinstance(value, _ALLOWED):
            raise mistake(
                f"user.{name} is set to {value!r}. The hidden state holds booleans, small whole "
                "numbers, texts and None, so that states can be told apart."
            )
        if isinstance(value, int) and abs(value) > _LARGEST_INT:
            raise mistake(f"user.{name} = {value} is too large for a hidden state.")
        self._state[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self._state:
            raise mistake(f"user.{name} was never set.")
        del self._state[name]

    def __getattr__(self, name: str) -> Any:
        state = object.__getattribute__(self, "_state")
        if name in state:
            return state[name]
        if name.startswith("click"):
            raise mistake(f"user.{name} was never set on this path. To click: user.click()")
        raise mistake(
            f"user.{name} was never set on this path.\n"
            f"  Perhaps: def start(self, user): user.{name} = False"
        )


class Result:
    """The result being looked at; `result.<column>` is a yes/no column of the log."""

    def __init__(self, chooser: Chooser) -> None:
        object.__setattr__(self, "_chooser", chooser)

    def __getattr__(self, name: str) -> YesNo:
        if name.startswith("__"):
            raise AttributeError(name)
        return YesNo(name, object.__getattribute__(self, "_chooser"))

    def __setattr__(self, name: str, value: Any) -> None:
        raise mistake(
            f"result.{name} cannot be set: a result is observed. The user remembers: "
            f"user.{name} = ..."
        )


class YesNo:
    """A yes/no column of the log at the current result, of use only as a truth value."""

    def __init__(self, column: str, chooser: Chooser) -> None:
        self._column = column
        self._chooser = chooser

    def __bool__(self) -> bool:
        return self._chooser.guard(self._column)

    def __repr__(self) -> str:
        return f"result.{self._column}"

    def _refuse(self, *_: object) -> NoReturn:
        raise mistake(
            f"result.{self._column} is known to the log, not to the program: it can only be asked "
            f"yes or no (if result.{self._column}: ...).\n"
            f'  To let a coin depend on its value: Parameter("{self._column}")'
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = _refuse
    __rshift__ = __rrshift__ = __neg__ = __pos__ = __invert__ = __abs__ = __round__ = _refuse
    __int__ = __float__ = __index__ = __len__ = __iter__ = __contains__ = _refuse
    __getitem__ = __call__ = __hash__ = __str__ = __format__ = _refuse
