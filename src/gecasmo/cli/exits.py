"""What the exit codes mean."""

from __future__ import annotations

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
    INTERRUPTED: "interrupted; a fit that had begun is written as far as it came",
    PIPE_CLOSED: "whoever read the output on a pipe has gone",
}

EPILOG = "[b]Exit codes[/b]\n" + "\n".join(
    f"[cyan]{code:>3}[/cyan]  {meaning}" for code, meaning in MEANINGS.items()
)
