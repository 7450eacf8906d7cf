"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re

# Parameters that are flags here. Others stay as they are: a wrong translation would be worse.
_FLAGS = (
    *("session", "query", "doc", "rank", "click", "weight", "format", "max_line"),
    *("keep", "memory", "partitions"),
    *("max_iter", "tol", "threads", "seed", "impossible", "checkpoint", "decay"),
    *("test", "bootstrap", "over", "judgments", "level"),
    *("grades", "rule", "thresholds", "max_width", "min_examinations", "ids", "name"),
)
_CALL = re.compile(r"read_log\((?P<quote>[\"']).*?(?P=quote)(?P<rest>(?:, *\w+=[^()]*)?)\)")
# Not in a call, such as EM(tol=0); a parenthesis after a space is one of the sentence.
_PARAMETER = re.compile(rf"(?<![\w-])(?<!\w\()(?P<name>{'|'.join(_FLAGS)})=(?P<after>[\s.,;)]|$)?")
_AGAIN = re.compile(r"fit\(log,(?: method,)? start=model\)")
_KEY = re.compile(r"(?P<coin>\w+)=Table\(key=(?P<quote>[\"'])(?P<column>\w+)(?P=quote)\),?")
# What is said in other words here; longer ones first, where one is part of another.
_PHRASES = {
    "Continue with fit(log, start=model)": "Go on with --start FIT",
    "Go on with fit(log, start=model) and another folder": "Go on with --start FIT and another "
    "--checkpoint folder",
    "go on with fit(log, start=model)": "go on with --start FIT",
    "by start=model": "by --start FIT",
    "or raise max_iter": "or raise --max-iter",
    "resume=False": "--no-resume",
    "overwrite=True": "--force",
    ", and open_log opens it": "",
    "`gecasmo ingest` and ClickLog.ingest": "`gecasmo ingest`",
    "ClickLog.ingest makes one": "`gecasmo ingest` makes one",
    "The same call goes on": "The same command goes on",
    "or log.take(...) without them": "or a log without them",
    "fit, score and evaluate also take": "fit and evaluate also take",
}


def in_flags(text: str) -> str:
    """The text with flags where the library names parameters, as in `doc="url"`."""
    for python, ours in _PHRASES.items():
        text = text.replace(python, ours)
    text = _AGAIN.sub("`gecasmo fit MODEL LOG --start FIT`", text)
    text = _CALL.sub(lambda call: call["rest"].strip(", ").replace(", ", " "), text)
    text = _KEY.sub(r"--key \g<coin>=\g<column>", text)
    return _PARAMETER.sub(_flag, text)


def _flag(found: re.Match[str]) -> str:
    after = found["after"]
    return f"--{found['name'].replace('_', '-')}{' ' if after is None else after}"
