"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re

# Parameters that are flags here. Others stay as they are: a wrong translation would be worse.
_FLAGS = (
    *("session", "query", "doc", "rank", "click", "weight", "format", "max_line"),
    *("keep", "memory", "partitions"),
    *("max_iter", "tol", "threads", "seed", "impossible", "checkpoint", "decay"),
    *("test", "bootstrap", "over", "judgments", "level"),
    *("grades", "rule", "thresholds", "max_width", "min_examinations", "min_probability"),
    *("min_order", "ids", "name", "ratings", "include"),
)
_CALL = re.compile(r"read_log\((?P<quote>[\"']).*?(?P=quote)(?P<rest>(?:, *\w+=[^()]*)?)\)")
# Not in a call, such as EM(tol=0); a parenthesis after a space is one of the sentence.
_PARAMETER = re.compile(rf"(?<![\w-])(?<!\w\()(?P<name>{'|'.join(_FLAGS)})=(?P<after>[\s.,;)]|$)?")
_INGEST = re.compile(r"(?<![.\w])ingest\((?P<inside>[^()]*)\)")
_LIST = re.compile(r"(?<![\w-])(?P<name>keep|session|doc)=\[(?P<list>(?:'[^']*'(?:, )?)+)\]")
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
    "with fold='auto'": "without --fold or --no-fold",
    "fold=True": "--fold",
    "fold=False": "--no-fold",
    "ingest(keep=...)": "--keep",
    "out of keep,": "out of --keep,",
    "name them in keep": "name them in --keep",
    "without partitions": "without --partitions",
    "without keep": "without --keep",
    "without format": "without --format",
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
    text = _INGEST.sub(r"\g<inside>", text)
    text = _LIST.sub(lambda found: f"{found['name']}={_joined(found['list'])}", text)
    text = _KEY.sub(r"--key \g<coin>=\g<column>", text)
    return _PARAMETER.sub(_flag, text)


def _joined(names: str) -> str:
    """Names in a list as a flag takes them."""
    return ",".join(re.findall("'([^']*)'", names))


def _flag(found: re.Match[str]) -> str:
    after = found["after"]
    return f"--{found['name'].replace('_', '-')}{' ' if after is None else after}"
