"""Grades of other judges, and runs of rankers, as people have them: files or data frames.

A grade is a number or a word, of one pair of query and document by one judge. Which column is what
is told, or guessed by its name. What cannot be used is counted, and said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import either, option
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.logs.roles import plain, synonym
from gecasmo.logs.side_tables import read_side_table
from gecasmo.model.structured import as_frame
from gecasmo.report import counted, printable

Ints = NDArray[np.int64]

# Usual names of columns of grades and scores, beside those that logs have for queries and docs.
_USUAL = {
    "grade": "grade rating label relevance judgment judgement rel score gain",
    "rank": "rank position pos rnk",
    "score": "score sim similarity value",
}
_TREC = {
    "grades": ("query", "iteration", "doc", "grade"),
    "run": ("query", "iteration", "doc", "rank", "score", "tag"),
}
MOST_GRADES = 12  # numbers that take more different values are scores
_BINS = 20  # scores are looked at in so many classes, with as many pairs each
_FEWEST = 10  # pairs in a class, if there can be several
_MOST_WORDS = 30


@dataclass(frozen=True)
class Grades:
    """Where the grades of a judge are, and which columns they are in.

    Parameters
    ----------
    source : path or data frame
        A .csv, .tsv, .parquet or .jsonl file (texts also .gz); any other file is read as TREC
        qrels.
    name : str, optional
        What the judge is called; by default the name of the file.
    query, doc, grade : str, optional
        Names of columns; by default guessed.
    """

    source: Any
    name: str | None = None
    query: str | None = None
    doc: str | None = None
    grade: str | None = None


@dataclass(frozen=True)
class Judge:
    """Grades of one judge: a row of `frame` per pair, its `grade` a number from 0.

    `labels` say what the numbers stand for, in their order; `is_ordered` is False for words,
    `is_score` says that numbers stand for classes of scores. `notes` say what was counted.
    """

    name: str
    frame: pl.DataFrame
    labels: tuple[str, ...]
    is_ordered: bool
    is_score: bool
    notes: tuple[str, ...] = field(default=())


def read_judges(given: Any, like: Mapping[str, pl.DataType]) -> list[Judge]:
    """Read what `grades_from` was given: a source, a list of them, or sources by name.

    `like` has the types of query and doc that the model has.
    """
    if isinstance(given, Mapping) and not _is_table(given):
        sources = [_as_grades(source, str(name)) for name, source in given.items()]
    elif isinstance(given, list | tuple):
        sources = [_as_grades(source, None) for source in given]
    else:
        sources = [_as_grades(given, None)]
    if not sources:
        raise JudgmentsError(f"{option('grades_from')}: there is no judge in it.")
    judges: list[Judge] = []
    for number, source in enumerate(sources, 1):
        judge = read_judge(source, like, f"judge {number}")
        taken = {other.name for other in judges}
        if judge.name in taken:
            raise JudgmentsError(
                f"{option('grades_from')}: two judges are called {judge.name!r}. "
                + either("Name them: grades_from={'one': ..., 'other': ...}; or rename", "Rename")
                + " a file."
            )
        judges.append(judge)
    return judges


def _is_table(given: Mapping[Any, Any]) -> bool:
    """Whether a dictionary holds columns, not sources."""
    return any(isinstance(own, list | tuple | np.ndarray | pl.Series) for own in given.values())


def _as_grades(source: Any, name: str | None) -> Grades:
    if not isinstance(source, Grades):
        return Grades(source, name)
    if name is None or source.name is not None:
        return source
    return Grades(source.source, name, source.query, source.doc, source.grade)


def read_judge(source: Grades, like: Mapping[str, pl.DataType], otherwise: str) -> Judge:
    """Read and check the grades of one judge."""
    is_file = isinstance(source.source, str | Path)
    name = source.name or (_stem(Path(source.source)) if is_file else otherwise)
    where = f"grades of {printable(name)}" if not is_file else f"grades {source.source}"
    frame = read_table(source.source, "grades", where)
    named = {"query": source.query, "doc": source.doc, "grade": source.grade}
    frame, guessed = _chosen(frame, named, [*like, "grade"], where)
    if frame.is_empty():
        raise JudgmentsError(f"{where}: there are no rows.")
    notes = list(guessed)
    n_rows = len(frame)
    frame = frame.with_columns(_as_in(frame[key], dtype, where) for key, dtype in like.items())
    blank = pl.col("grade").is_null()
    if frame["grade"].dtype == pl.String:
        bare = pl.col("grade").str.strip_chars()
        blank |= (bare == "") | ~bare.cast(pl.Float64, strict=False).is_finite().fill_null(True)
    if frame["grade"].dtype.is_float():
        blank |= ~pl.col("grade").is_finite()
    frame = frame.filter(~blank).drop_nulls(list(like))
    if len(frame) < n_rows:
        notes.append(f"{counted(n_rows - len(frame), 'row')} without query, doc or grade left out")
    if frame.is_empty():
        raise JudgmentsError(f"{where}: no row has a query, a doc and a grade.")
    grades = _numbers(frame["grade"])
    is_word = grades is None
    values = _words(frame["grade"]) if grades is None else grades
    notes += _stray_words(frame["grade"]) if is_word else []
    frame, told = _one_each(frame.with_columns(values.alias("grade")), list(like), is_word)
    notes += told
    level, labels = (
        _word_levels(frame["grade"], where) if is_word else _number_levels(frame["grade"])
    )
    if len(labels) < 2:
        raise JudgmentsError(
            f"{where}: all {len(frame):,} pairs have the same grade ({labels[0]}), which says "
            f"nothing. Give grades that differ, or leave this judge out."
        )
    is_score = not is_word and frame["grade"].n_unique() > MOST_GRADES
    frame = frame.select(*like).with_columns(pl.Series("grade", level))
    return Judge(printable(name), frame, labels, not is_word, is_score, tuple(notes))


def _stem(path: Path) -> str:
    name = path.name
    for end in (".gz", ".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".qrels", ".txt"):
        name = name.removesuffix(end)
    return name or path.name


def read_run(given: Any, like: Mapping[str, pl.DataType], name: str) -> pl.DataFrame:
    """Read a ranker's run: query, doc and `place`, 1 for the first; by rank, or else by score.

    Of a file that is no table lines of TREC runs are read.
    """
    where = f"run {given}" if isinstance(given, str | Path) else f"run {name}"
    frame = read_table(given, "run", where)
    free = [column for column in frame.columns if column not in ("query", "doc")]
    by = _find("rank", free) or _find("score", free)
    if by is None:
        raise JudgmentsError(
            f"{where}: no column of ranks or scores. It has: {', '.join(frame.columns)}; call one "
            "'rank' or 'score'."
        )
    frame, _ = _chosen(frame, {"query": None, "doc": None, "by": by}, [*like, "by"], where)
    frame = frame.with_columns(_as_in(frame[key], dtype, where) for key, dtype in like.items())
    order = _numbers(frame["by"])
    if order is None or frame.select(*like).null_count().sum_horizontal()[0]:
        raise JudgmentsError(f"{where}: every row needs query, doc and a number in {by!r}.")
    frame = frame.with_columns(order.alias("by"))
    if frame.is_empty():
        raise JudgmentsError(f"{where}: there are no rows.")
    twice = frame.select(*like).is_duplicated()
    if twice.any():
        pair = frame.select(*like).row(int(twice.arg_max() or 0))
        raise JudgmentsError(f"{where}: the pair {pair} is there twice; a run has each pair once.")
    is_score = _find("rank", [by]) is None
    place = pl.col("by").rank("ordinal", descending=is_score)
    place = place.over("query") if "query" in like else place
    return frame.select(*like, place=place.cast(pl.Int64))


# -- reading -----------------------------------------------------------------------------------
def read_table(given: Any, kind: str, where: str) -> pl.DataFrame:
    """A data frame as it is; a file of columns, with all texts as texts; else lines of TREC."""
    if not isinstance(given, str | Path):
        return as_frame(given, where)
    path = Path(given).expanduser()
    if not path.is_file():
        what = (
            "that is no file, but a pipe or a folder" if path.exists() else "there is no such file"
        )
        raise JudgmentsError(f"{where}: {what}.")
    found = read_side_table(path, where, all_texts=True)
    if found is not None:
        return found
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as problem:
        raise JudgmentsError(f"{where} cannot be read: {problem}") from problem
    columns = _TREC[kind]
    for number, words in enumerate(lines, 1):
        if words and len(words) != len(columns):
            raise JudgmentsError(
                f"{where}, line {number}: a .csv, .tsv, .parquet or .jsonl file is wanted, or "
                f"lines of TREC with {', '.join(columns)}; this one has {len(words)} words."
            )
    rows = [words for words in lines if words]
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _find(role: str, columns: Sequence[str]) -> str | None:
    if role in ("query", "doc"):
        return role if role in columns else synonym(role, columns)
    by_plain = {plain(name): name for name in reversed(columns)}
    return next((by_plain[name] for name in _USUAL[role].split() if name in by_plain), None)


def _chosen(
    frame: pl.DataFrame, named: Mapping[str, str | None], roles: Sequence[str], where: str
) -> tuple[pl.DataFrame, list[str]]:
    """The columns of some roles, under the names of these, and which were guessed."""
    for role, name in named.items():
        if name is not None and name not in frame.columns:
            raise JudgmentsError(
                f"{where}: no column {name!r} for {role}. It has: {', '.join(frame.columns)}."
            )
    found: dict[str, str] = {role: name for role, name in named.items() if name is not None}
    guessed = []
    for role in roles:
        if role in found:
            continue
        free = [name for name in frame.columns if name not in found.values()]
        name = _find(role, free)
        if name is None:
            said = ", ".join(frame.columns) or "no columns at all"
            how = either(f"Grades(source, {role}='...')", f"--grades-columns {role}=...")
            how = f"Say which one it is: {how}." if "grade" in roles else "Rename one."
            raise JudgmentsError(f"{where}: no column for {role}. It has: {said}. {how}")
        found[role] = name
        if name != role:
            guessed.append(f"{role} is its column {printable(name)!r}")
    return frame.select(pl.col(found[role]).alias(role) for role in roles), guessed


def _as_in(ids: pl.Series, dtype: pl.DataType, where: str) -> pl.Series:
    """Ids in the type that the model has them in: files often hold numbers as text, and back."""
    target = pl.String() if isinstance(dtype, pl.Categorical | pl.Enum) else dtype
    try:
        return ids.cast(target)
    except pl.exceptions.PolarsError:
        raise JudgmentsError(
            f"{where}: '{ids.name}' holds {ids.dtype} and the model {dtype}; not all of them can "
            f"be converted. Are these the ids that the log had?"
        ) from None


def _numbers(values: pl.Series) -> pl.Series | None:
    """Values as numbers, if all are."""
    if values.dtype == pl.String:
        values = values.str.strip_chars()
    if not (values.dtype.is_numeric() or values.dtype in (pl.String, pl.Boolean)):
        return None
    numbers = values.cast(pl.Float64, strict=False)
    return None if numbers.is_null().any() or not numbers.is_finite().all() else numbers


def _stray_words(values: pl.Series) -> list[str]:
    """A note where most grades are numbers, and some are not."""
    numbers = values.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    stray = values.filter(numbers.is_null())
    if 2 * len(stray) >= len(values):
        return []
    are = "grade is no number" if len(stray) == 1 else "grades are no numbers"
    return [
        f"{len(stray):,} {are}, such as {printable(stray[0])!r}: so all count as words, whose "
        "order clicks have to tell; leave these rows empty to have numbers"
    ]


def _words(values: pl.Series) -> pl.Series:
    return values.cast(pl.String).str.strip_chars()


def _one_each(
    frame: pl.DataFrame, keys: list[str], is_word: bool
) -> tuple[pl.DataFrame, list[str]]:
    """A row for each pair: of several grades the median, or the most frequent word."""
    n_rows = len(frame)
    chosen = pl.col("grade").mode().sort().first() if is_word else pl.col("grade").median()
    found = frame.group_by(keys, maintain_order=True).agg(
        chosen, differ=pl.col("grade").n_unique() > 1
    )
    notes = []
    if len(found) < n_rows:
        n_differ = int(found["differ"].sum())
        what = "the most frequent word" if is_word else "the median"
        note = f"{counted(n_rows - len(found), 'row')} of pairs that occurred before"
        if n_differ:
            note += f"; {counted(n_differ, 'pair')} with grades that differ: {what} counts"
        notes.append(note)
    return found.drop("differ"), notes


def _word_levels(values: pl.Series, where: str) -> tuple[Ints, tuple[str, ...]]:
    words = sorted(values.unique().to_list())
    if len(words) > _MOST_WORDS:
        raise JudgmentsError(
            f"{where}: {len(words):,} different words as grades (such as {words[0]!r}); at most "
            f"{_MOST_WORDS} are possible. Are these grades?"
        )
    return np.searchsorted(np.array(words), values.to_numpy()), tuple(map(printable, words))


def _number_levels(values: pl.Series) -> tuple[Ints, tuple[str, ...]]:
    """Each value its own, or classes with about as many pairs each where there are many."""
    numbers = values.to_numpy()
    distinct, counts = np.unique(numbers, return_counts=True)
    if len(distinct) <= MOST_GRADES:
        return np.searchsorted(distinct, numbers), tuple(f"{value:g}" for value in distinct)
    n_bins = int(np.clip(len(numbers) // _FEWEST, 2, _BINS))
    middle = np.cumsum(counts) - counts / 2
    of_value = np.minimum((middle * n_bins / len(numbers)).astype(np.int64), n_bins - 1)
    used, of_value = np.unique(of_value, return_inverse=True)
    level = of_value[np.searchsorted(distinct, numbers)]
    ends = [
        (distinct[of_value == n].min(), distinct[of_value == n].max()) for n in range(len(used))
    ]
    return level, tuple(f"{low:.4g} to {high:.4g}" for low, high in ends)
