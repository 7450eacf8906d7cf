"""What a fit says to a ranking stack: graded judgments, and propensities.

`gecasmo judgments FIT -o FILE` writes judgments; `gecasmo propensities FIT [LOG]` says how probable
it is that a rank is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import FitArgument, LevelFlag, LogFlags, bundled, output_flag
from gecasmo.cli.judges import WORTH, JudgeFlags, number_and_files
from gecasmo.cli.output import Output, place_name, table_format, write_table
from gecasmo.errors import GecasmoError
from gecasmo.files import STANDARD_OUTPUT
from gecasmo.report import TextTable, wrapped

if TYPE_CHECKING:
    import polars as pl


_HEAD = 5  # lines to show of what a file holds


class Rule(StrEnum):
    """How relevance becomes a grade."""

    informative = "informative"
    quantile = "quantile"
    quantile_per_query = "quantile-per-query"
    threshold = "threshold"
    interval = "interval"


class Ids(StrEnum):
    """What formats of words do with ids that hold white space."""

    refused = "refuse"
    encoded = "encode"


class Ratings(StrEnum):
    """What files of ratings hold."""

    grades = "grade"
    floats = "float"


class Include(StrEnum):
    """Which pairs files of ratings hold."""

    judged = "judged"
    ordered = "ordered"


def _complete_format(incomplete: str) -> list[tuple[str, str]]:
    from gecasmo.judgments.formats import FORMATS

    return [(name, f.title) for name, f in FORMATS.items() if name.startswith(incomplete)]


@bundled
def judgments(
    fit: FitArgument,
    target: Annotated[str, output_flag("The file to write; - is standard output.")],
    judges: JudgeFlags,
    output: Output,
    format: Annotated[
        str | None,
        typer.Option(
            help="quepid, quepid-book, opensearch, elasticsearch, ranklib, lightgbm, xgboost, "
            "qrels, csv or parquet, or a tool that reads one of these (ranx, trec, sklearn, ...); "
            "by default recognised from the file's name.",
            autocompletion=_complete_format,
        ),
    ] = None,
    grades: Annotated[
        list[str] | None,
        typer.Option(
            "--grades",
            "--grades-from",
            metavar="N or FILE",
            help="A number: how many grades; 4, the default, means 0, 1, 2 and 3. A file: grades "
            "of another judge (query, doc, grade), trusted as far as clicks support them. "
            "Can be repeated.",
        ),
    ] = None,
    rule: Annotated[Rule, typer.Option(help="How relevance becomes a grade.")] = Rule.informative,
    relevance: Annotated[
        str | None,
        typer.Option(
            metavar="COIN,...",
            help="The coins whose product is relevance, in place of those that the model names: "
            "'attraction[0]' is that for the first intent of Intents.",
        ),
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,...", help="Cut points of the rules threshold and interval, ascending."
        ),
    ] = None,
    level: LevelFlag = 0.9,
    max_width: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Give no grade to a pair with a wider interval, or without one; 'none' for "
            "classifiers and networks, which have no intervals.",
        ),
    ] = "0.4",
    min_examinations: Annotated[
        float, typer.Option(help="Give no grade to a pair with fewer expected examinations.")
    ] = 10.0,
    min_probability: Annotated[
        float, typer.Option(help="Give no grade that is right with a smaller probability.")
    ] = 0.5,
    min_order: Annotated[
        float,
        typer.Option(
            help="A pair without a grade is 'ordered' if its order within the query is right with "
            "at least this probability, on average."
        ),
    ] = 0.8,
    every_pair: Annotated[
        bool,
        typer.Option(
            "--every-pair",
            help="Grade every pair, however little is known about it; csv and parquet say how sure "
            "each grade is.",
        ),
    ] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Judge these pairs, also if never shown: CSV or Parquet with query and doc.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with query and doc, or one of these, and columns: those that the "
            "fit's forms read, and those of training files (ranklib, lightgbm, xgboost).",
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="What to write as the query if the model has no queries.")
    ] = None,
    ids: Annotated[
        Ids,
        typer.Option(help="For qrels and ranklib: ids with white space are refused or %-encoded."),
    ] = Ids.refused,
    name: Annotated[
        str | None, typer.Option(help="For opensearch and quepid-book: the name of the list.")
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="For elasticsearch: the index that holds the documents.")
    ] = None,
    ratings: Annotated[
        Ratings,
        typer.Option(
            help="For Quepid and OpenSearch: whole grades, or floats (the expected grade)."
        ),
    ] = Ratings.grades,
    include: Annotated[
        Include,
        typer.Option(help="With --ratings float: also pairs that are 'ordered' and have no grade."),
    ] = Include.judged,
    worth_judging: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Also name the N pairs and queries most worth judging by hand."
        ),
    ] = None,
    worth_output: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write these pairs here: .csv, .json, .parquet."),
    ] = None,
) -> None:
    """Grade every pair of query and document of a fit, if the data suffice.

    [bold]Examples[/bold]

    [cyan]gecasmo judgments dbn.fit -o judgments.csv[/cyan]

    [cyan]gecasmo judgments dbn.fit -o quepid.csv --format quepid --rule threshold
    --thresholds 0.1,0.3,0.6[/cyan]

    [cyan]gecasmo judgments dbn.fit -o judgments.json --ratings float --include ordered[/cyan]

    [cyan]gecasmo judgments dbn.fit -o - --format qrels --ids encode | head[/cyan]

    [cyan]gecasmo judgments dbn.fit -o judgments.csv --grades llm.csv --grades humans.csv[/cyan]
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.judgments import judge
    from gecasmo.judgments.formats import format_of
    from gecasmo.model.relevance import coins_of_relevance

    n_grades, files = number_and_files(grades)
    sources = judges.sources(files)
    read = (fit, features, pairs, *files, *(judges.run or ()))
    judges.check(output, read, {"--output": target, "--worth-output": worth_output})
    place = output.place(target, *read, is_text=format != "parquet")
    chosen = format_of(place, format)
    worth_place = None
    if worth_output is not None:
        table_format(worth_output, "--worth-output")
        worth_place = output.place(
            worth_output, *read, flag="--worth-output", besides={"--output": target}
        )
    cuts = _numbers(thresholds)
    model = load_fit(fit)
    if relevance is not None:
        model.relevance = tuple(name.strip() for name in relevance.split(","))
    texts = text_ids(model)
    frame = None if features is None else read_table(features, "--features", texts)
    asked = None if pairs is None else read_table(pairs, "--pairs", texts)
    by_features = any(model.forms[coin].columns for coin in coins_of_relevance(model))
    is_written = "features" in chosen.options
    with output.working("Grading"):
        found = judge(
            model,
            grades=n_grades,
            grades_from=sources,
            rule=rule.value,
            thresholds=cuts,
            level=level,
            max_width=_width(max_width),
            min_examinations=min_examinations,
            min_probability=min_probability,
            min_order=min_order,
            every_pair=every_pair,
            pairs=asked,
            # A table that is only to be written is none of the model's business.
            features=frame if by_features or not is_written else None,
        )
        if worth_judging is None and sources is not None:
            worth_judging = WORTH
        worth = None
        if worth_judging is not None:
            worth = found.worth_judging(worth_judging, judge=judges.judge)
        of_judges, in_words = judges.tell(found)
    options: dict[str, Any] = {
        **{"features": frame if is_written else None, "query": query},
        **{"ids": ids.value, "name": name, "index": index},
        **{"ratings": ratings.value, "include": include.value},
    }
    written = found.write(place, chosen.name, **options)
    if place == STANDARD_OUTPUT:
        written = replace(written, path=Path("standard output"))
    if worth is not None and worth_place is not None:
        write_table(worth.pairs, worth_place)
    data = {
        **found.to_dict(),
        "writing": written,
        "worth_judging": None if worth is None else worth._asdict(),
        **of_judges,
    }
    told = [str(found), str(written), *in_words]
    if worth is not None:
        most = None if worth_output is None else _HEAD
        told.append(f"\n{worth.text(most)}")
        if worth_place is not None:
            told.append(f"Worth judging: {place_name(worth_place)}.")
    output.summarise(place, data, *told, also=worth_place)


def _width(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"--max-width {text}: write a number such as 0.4, or none."
        ) from None


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"--thresholds {text}: write numbers with commas between them, such as 0.1,0.3,0.6."
        ) from None


def text_ids(model: Any) -> list[str]:
    """Which of query and doc are texts in a fit: there 007 is not 7."""
    import polars as pl

    if model.pairs_ is None:
        return []
    texts = (pl.String, pl.Categorical, pl.Enum)
    known = model.pairs_.schema
    return [name for name in ("query", "doc") if known.get(name, pl.Null) in texts]


def read_table(path: Path, flag: str, texts: Sequence[str] = ()) -> pl.DataFrame:
    """A CSV, TSV, JSON lines or Parquet file that is no log; these columns are texts."""
    from gecasmo.logs.side_tables import read_side_table

    if not path.is_file():
        what = (
            "that is no file, but a pipe or a folder" if path.exists() else "there is no such file"
        )
        raise GecasmoError(f"{flag} {path}: {what}.")
    found = read_side_table(path, f"{flag} {path}", texts)
    if found is None:
        raise GecasmoError(f"{flag} {path}: a .csv, .tsv, .jsonl or .parquet file is wanted.")
    return found


@bundled
def propensities(
    fit: FitArgument,
    reading: LogFlags,
    output: Output,
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="[LOG]",
            help="Pages to average over, for models in which examination depends on clicks.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        output_flag(
            "Write them here: .csv, .tsv, .json, .ndjson or .parquet; - is standard output."
        ),
    ] = None,
    level: LevelFlag = 0.9,
) -> None:
    """Examination by rank, with intervals, for learners that correct for position.

    [bold]Examples[/bold]

    [cyan]gecasmo propensities pbm.fit -o propensities.csv[/cyan]

    [cyan]gecasmo propensities dbn.fit clicks.parquet[/cyan]
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.judgments import propensities as estimate
    from gecasmo.model.answers import told_unseen, unseen_shares

    place = None
    if target is not None:
        table_format(target)
        place = output.place(target, fit, log)
    model = load_fit(fit)
    clicks = None if log is None else reading.read_any(log, output).log
    with output.working("Estimating"):
        frame = estimate(model, clicks, level=level)
        unseen = {} if clicks is None else unseen_shares(model, clicks)
    if place is not None:
        write_table(frame, place)
    data = {"model": model.name, "level": level, "written": target, "unseen": unseen}
    data |= {"propensities": frame}
    told = ["\n".join(wrapped(told_unseen(unseen)))] if any(unseen.values()) else []
    title = f"How probable it is that a rank is looked at, under {model.name}"
    table = TextTable.of(frame, title, digits=4)
    if place is None:
        output.show(data, table, *told)
    else:
        output.summarise(place, data, table, *told, f"Written to {place_name(place)}.")
