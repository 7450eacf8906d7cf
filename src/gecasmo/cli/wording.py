"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re

# Parameters that are flags here. Others stay as they are: a wrong translation would be worse.
_FLAGS = (
    *("session", "query", "doc", "rank", "click", "weight", "format", "max_line"),
    *("keep", "memory", "partitions"),
    *("max_iter", "tol", "threads", "seed", "impossible"),
    *("test", "bootstrap", "over", "judgments", "level"),
    *("grades", "rule", "thresholds", "max_width", "min_examinations", "ids", "name"),
)
_CALL = re.compile(r"read_log\((?P<quote>[\"']).*?(?P=quote)(?P<rest>(?:, *\w+=[^()]*)?)\)")
_PARAMETER = re.compile(rf"(?<![\w(-])(?P<name>{'|'.join(_FLAGS)})=(?P<space>\s?)")
_KEY = re.compile(r"(?P<coin>\w+)=Table\(key=(?P<quote>[\"'])(?P<column>\w+)(?P=quote)\),?")


def in_flags(text: str) -> str:
    """The text with flags where the library names parameters, as in `doc="url"`."""
    text = text.replace("Continue with fit(log, start=model)", "Go on with --start FIT")
    text = text.replace("resume=False", "--no-resume").replace("overwrite=True", "--force")
    text = _CALL.sub(lambda call: call["rest"].strip(", ").replace(", ", " "), text)
    text = _KEY.sub(r"--key \g<coin>=\g<column>", text)
    return _PARAMETER.sub(
        lambda found: f"--{found['name'].replace('_', '-')}{found['space'] or ' '}", text
    )
