"""Flags of `gecasmo judgments` about other judges, and what is told and written of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.output import Output, check_new_folder, write_table
from gecasmo.errors import GecasmoError

if TYPE_CHECKING:
    from gecasmo.judgments import Judgments

_PANEL = "Other judges"
_ROLES = ("query", "doc", "grade")
_SHOWN = 10  # disagreements in a terminal
WORTH = 20  # pairs that a person should judge next
_OF_JUDGES = ("trust", "calibration", "confusion", "disagreements", "worth_judging")
TABLES = (*_OF_JUDGES, "ndcg", "ndcg_differences")


@dataclass(frozen=True)
class JudgeFlags:
    """What else to say of judges, and of runs."""

    grades_columns: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE=COLUMN,...",
            help="The columns of files with grades, such as query=q,doc=sku,grade=stars; by "
            "default they are guessed.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of pairs worth judging, only those that this judge (the name of its file) has "
            "not graded yet.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A ranker's run (query, doc, rank or score; or TREC): show its nDCG by clicks and "
            "judges. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    ndcg_at: Annotated[
        int,
        typer.Option(min=1, help="How many ranks of a run count.", rich_help_panel=_PANEL),
    ] = 10
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write tables here: trust, calibration, confusion, disagreements, worth_judging "
            "and ndcg, as .csv.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def sources(self, files: list[str]) -> list[Any] | None:
        """The grades of judges as `judge` takes them; None without any."""
        from gecasmo.judgments import Grades

        if not files:
            if self.grades_columns is not None:
                raise typer.BadParameter("--grades-columns: there is no file of grades.")
            return None
        return [Grades(path, **self._columns()) for path in files]

    def check(
        self, output: Output, inputs: Iterable[str | None], written: Mapping[str, str | None]
    ) -> None:
        """Complain before the work, not after it.

        No table of --report takes the place of a file that is read, such as the list of pairs
        worth judging to which somebody has added grades, nor of what other flags write.
        """
        if self.report is not None:
            check_new_folder(self.report, f"--report {self.report}")
            for name in TABLES if self.report.is_dir() else ():
                table = str(self.report / f"{name}.csv")
                output.place(table, *inputs, flag="--report", besides=written)
        for path in self.run or ():
            if not Path(path).expanduser().is_file():
                raise GecasmoError(f"--run {path}: there is no such file.")
        if len({Path(path).name for path in self.run or ()}) < len(self.run or ()):
            raise GecasmoError("--run: two runs have the same name; rename a file.")

    def tell(self, found: Judgments) -> tuple[dict[str, Any], list[str]]:
        """What is known of judges and runs: ready for JSON, and in words; files are written."""
        from gecasmo.judgments.judges import disagreements_table

        tables: dict[str, Any] = {}
        data: dict[str, Any] = {}
        told: list[str] = []
        if found.panel is not None:
            judges, apart = found.judges, found.disagreements(WORTH)
            tables |= {"trust": judges.trust, "calibration": judges.calibration}
            tables |= {"confusion": judges.confusion, "disagreements": apart}
            tables["worth_judging"] = found.worth_judging(WORTH, judge=self.judge).pairs
            data["disagreements"] = apart
            told.append(f"\n{judges}")
            if len(apart):
                told.append(f"\n{disagreements_table(apart, _SHOWN)}")
        if self.run:
            quality = found.ndcg({Path(path).name: path for path in self.run}, at=self.ndcg_at)
            tables["ndcg"] = quality.runs
            if len(quality.differences):
                tables["ndcg_differences"] = quality.differences
            data["ndcg"] = quality.to_dict()
            told.append(f"\n{quality}")
        if self.report is not None and tables:
            self.report.mkdir(parents=True, exist_ok=True)
            for name, frame in tables.items():
                write_table(frame, self.report / f"{name}.csv")
            told.append(f"Tables: {self.report} ({', '.join(tables)}).")
        return data, told

    def _columns(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in (self.grades_columns or "").split(","):
            role, _, column = word.partition("=")
            if word and (role not in _ROLES or not column):
                raise typer.BadParameter(
                    f"--grades-columns {self.grades_columns}: write, for example, "
                    f"query=q,doc=sku,grade=stars."
                )
            if word:
                found[role] = column
        return found


def number_and_files(given: list[str] | None) -> tuple[int, list[str]]:
    """What --grades was given: how many grades there are, and files with those of judges."""
    numbers = [word for word in given or () if word.lstrip("-").isdigit()]
    files = [word for word in given or () if word not in numbers]
    for path in files:
        if not Path(path).expanduser().is_file():
            raise typer.BadParameter(
                f"--grades {path}: neither a number of grades nor a file with those of a judge."
            )
    # The last number counts, as of every flag that is given twice.
    return int(numbers[-1]) if numbers else 4, files
