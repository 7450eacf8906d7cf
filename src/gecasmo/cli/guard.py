"""How commands fail: one clear message and an exit code; a traceback only with --debug.

Here are what the exit codes mean, and the guard around every command that turns errors and warnings
into them.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import typer
from typer.core import TyperGroup

from gecasmo.cli.config import config_path, current
from gecasmo.cli.output import heard, write_remark
from gecasmo.errors import GecasmoError, GecasmoWarning, for_the_command_line
from gecasmo.report import printable_lines

FINE = 0
BAD_INPUT = 1
FAULTY_LOG = 3
NOT_CONVERGED = 4
INTERRUPTED = 130
PIPE_CLOSED = 141

MEANINGS = {
    FINE: "fine",
    BAD_INPUT: "a file or a value cannot be used, or a bug; the message says which",
    2: "unknown flags or commands, missing arguments, values of a wrong kind",
    FAULTY_LOG: "`check` found errors in the log (with --strict: or warnings)",
    NOT_CONVERGED: "the fit did not converge; its file is written all the same",
    INTERRUPTED: "interrupted; a fit that had begun is written in its current state",
    PIPE_CLOSED: "the program that read the output from a pipe has ended",
}

EPILOG = "[b]Exit codes[/b]\n" + "\n".join(
    f"[cyan]{code:>3}[/cyan]  {meaning}" for code, meaning in MEANINGS.items()
)


# Typer's base of all complaints about how a command was called; it has no public name of its own.
_USAGE_ERROR: Any = typer.BadParameter.__base__
_PASSES = (typer.Exit, typer.Abort, _USAGE_ERROR)


def run(app: Callable[..., Any]) -> int:
    """Run the command line; its exit code."""
    _replace_closed_streams()
    code: Any = BAD_INPUT
    try:
        try:
            app(prog_name="gecasmo")
        except SystemExit as end:
            # Rich and Typer end with 1 when a reader has gone.
            code = PIPE_CLOSED if isinstance(end.__context__, BrokenPipeError) else end.code
        sys.stdout.flush()  # a full disk shows itself here, not when Python ends
    except BrokenPipeError:
        code = PIPE_CLOSED
        _let_output_vanish()
    except Exception as error:
        if _is_of_standard_output(error):
            write_remark(_message(error))
            code = BAD_INPUT
            _let_output_vanish()
        else:  # only with --debug; Python itself would print whatever is in the message
            write_remark(traceback.format_exc().rstrip("\n"))
    return FINE if code is None else int(code)


def _replace_closed_streams() -> None:
    """Put something in the place of what the shell has closed (`>&-`).

    Writing to standard output fails then, and is told; remarks go nowhere, as was asked for.
    """
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


class Guarded(TyperGroup):
    """All commands, with every way they can fail looked after."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept `--debug` and `--config` anywhere in the line, not just before the command."""
        # These belong to all commands, and people add --debug at the end of a line that failed.
        end = args.index("--") if "--" in args else len(args)
        first, others, rest = list[str](), list[str](), iter(args[:end])
        for word in rest:
            is_common = word == "--debug" or word.split("=")[0] == "--config"
            (first if is_common else others).append(word)
            if word == "--config":
                first += list(islice(rest, 1))
        args = [*first, *others, *args[end:]]
        with _harmless_usage_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and turn what goes wrong in it into messages for a terminal."""
        is_debugging = bool(ctx.params.get("debug"))
        current.set(None)
        with for_the_command_line(), _one_line_warnings(is_debugging), _told(is_debugging):
            answer = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe shows itself here, not when Python ends
            return answer


@contextmanager
def _told(is_debugging: bool) -> Iterator[None]:
    """Turn errors into a message and an exit code."""
    try:
        with _harmless_usage_errors():
            yield
    except _PASSES:
        raise
    except BrokenPipeError:
        _let_output_vanish()
        raise typer.Exit(PIPE_CLOSED) from None
    except KeyboardInterrupt:
        write_remark("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if is_debugging:
            raise
        write_remark(_message(error))
        if _is_of_standard_output(error):
            _let_output_vanish()
        raise typer.Exit(BAD_INPUT) from None


@contextmanager
def resumable(folder: str | Path | None, how: str) -> Iterator[None]:
    """Say how to continue with what an interrupted command leaves in a folder, if it leaves one."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is None or not Path(folder).expanduser().is_dir():
            raise
        write_remark(f"Interrupted. {how}")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _harmless_usage_errors() -> Iterator[None]:
    """Typer prints these itself, with what was typed or came out of a script."""
    try:
        yield
    except _USAGE_ERROR as error:
        name, context = getattr(getattr(error, "param", None), "name", None), error.ctx
        source = context.get_parameter_source(name) if context and name else None
        if source is not None and source.name == "DEFAULT_MAP":
            error.message += f" (So says {config_path()}.)"
        error.message = printable_lines(error.message)
        raise


def _message(error: Exception) -> str:
    if isinstance(error, GecasmoError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return "There is not enough memory for this. Try fewer pages, or a part of the log."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}."
    if _is_of_standard_output(error):
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        return f"Standard output cannot be written to: {reason}."
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return (
        f"This is a bug in gecasmo: {type(error).__name__}: {text} "
        f"({os.path.basename(where.filename)}, line {where.lineno}). "
        "Please run with --debug and report what it shows."
    )


def _is_of_standard_output(error: BaseException) -> TypeGuard[OSError]:
    """Whether it was standard output that took no more; errors of files name the file."""
    few = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
    return isinstance(error, OSError) and error.filename is None and error.errno in few


def _let_output_vanish() -> None:
    """Point standard output to nowhere: Python flushes it once more when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file behind it, as in tests


@contextmanager
def _one_line_warnings(is_debugging: bool) -> Iterator[None]:
    """Show each warning of the library once, as a line on standard error."""
    said: list[str] = []
    token = heard.set(said)

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, GecasmoWarning) and not is_debugging:
            return  # Python's own, about code: nothing that a user could do
        text = " ".join(str(message).split())
        if text not in said:
            said.append(text)
            write_remark(f"Warning: {text}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", GecasmoWarning)
            warnings.showwarning = show
            yield
    finally:
        heard.reset(token)
