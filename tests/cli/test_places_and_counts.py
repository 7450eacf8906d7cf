"""Where commands write to, what they count, and what they say when they are interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import fail, invoke, succeed, succeed_with_json

import gecasmo
from gecasmo.errors import ClickLogError
from gecasmo.estimation.disk import DiskParts
from gecasmo.estimation.posteriors.learner import Posteriors
from gecasmo.logs.store.ingest import PartitionWriter
from gecasmo.model.base import Model
from gecasmo.model.stories import shown_pages

NOWHERE = Path("/proc")  # a folder that is there and takes no files, even from root


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few different pages of three or four results, shown often."""
    random = np.random.default_rng(1)
    rows = []
    for session in range(600):
        query = int(random.integers(4))
        for rank in range(1, 4 + query % 2):
            is_clicked = rank < 3 and random.random() < 0.3
            rows.append((session, f"q{query}", f"d{rank}", rank, int(is_clicked)))
    path = tmp_path_factory.mktemp("repeating") / "clicks.csv"
    frame = pl.DataFrame(rows, schema=["session", "query", "doc", "rank", "click"], orient="row")
    frame.write_csv(path)
    return path


@pytest.fixture(scope="module")
def folded(repeating: Path) -> Path:
    path = repeating.with_name("clicks.gclog")
    succeed("ingest", repeating, "-o", path, "--partitions", "2", "--fold", "-q")
    return path


@pytest.fixture(scope="module")
def fitted(folded: Path) -> Path:
    path = folded.with_name("pbm.fit")
    succeed("fit", "PBM", folded, "-o", path, "-q")
    return path


# -- where to ----------------------------------------------------------------------------------
@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that begins is a mistake."""

    def begin(*_: Any, **__: Any) -> Any:
        raise AssertionError("the work has begun")

    for name in ("fit", "update", "predict", "simulate"):
        monkeypatch.setattr(Model, name, begin)
    monkeypatch.setattr("gecasmo.judgments.judge", begin)
    monkeypatch.setattr("gecasmo.logs.store.ingest.ingest", begin)


@pytest.mark.skipif(not NOWHERE.is_dir(), reason="no folder that nobody can write to")
@pytest.mark.parametrize("name", ["{}/x", "{}/x.csv", "missing/x.csv"])
@pytest.mark.parametrize("command", ["fit", "update", "predict", "simulate", "judgments", "ingest"])
def test_a_place_that_cannot_be_written_to_is_told_before_the_work(
    command: str, name: str, fit_file: Path, log_file: Path, folder: Path, no_work: None
) -> None:
    arguments = {
        "fit": ("DBN", log_file),
        "update": (fit_file, log_file),
        "predict": (fit_file, log_file),
        "simulate": (fit_file, log_file),
        "judgments": (fit_file, "--format", "csv"),
        "ingest": (log_file,),
    }[command]
    target = name.format(NOWHERE)
    text = " ".join(fail(command, *arguments, "-o", target).split())
    wanted = "cannot be written to" if "/proc" in target else "there is no folder missing"
    assert f"--output {target}" in text
    assert wanted in text
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.jsonl", "p.csv.gz", "p.pq"])
def test_predictions_are_what_their_name_says(
    fit_file: Path, log_file: Path, folder: Path, name: str
) -> None:
    succeed("predict", fit_file, log_file, "-o", "p.parquet")
    succeed("predict", fit_file, log_file, "-o", name)
    readers: dict[str, Any] = {
        "tsv": lambda path: pl.read_csv(path, separator="\t"),
        "jsonl": pl.read_ndjson,
        "pq": pl.read_parquet,
    }
    found = readers.get(name.split(".")[-1], pl.read_csv)(folder / name)
    wanted = pl.read_parquet(folder / "p.parquet")
    assert found.columns == wanted.columns
    np.testing.assert_allclose(found["probability"], wanted["probability"], rtol=1e-12)
    assert found["rank"].to_list() == wanted["rank"].to_list()


def test_predictions_of_several_partitions_as_text(
    fitted: Path, folded: Path, folder: Path
) -> None:
    for name in ("p.csv", "p.parquet"):
        succeed("predict", fitted, folded, "-o", name)
    found, wanted = pl.read_csv(folder / "p.csv"), pl.read_parquet(folder / "p.parquet")
    for name in ("query", "doc", "rank", "click", "weight"):
        assert found[name].to_list() == wanted[name].to_list()
    assert len(set(found["query"])) == 4


@pytest.mark.parametrize("name", ["p.xlsx", "p.feather", "p.parquet.gz"])
def test_tables_that_nobody_writes_are_refused(
    fit_file: Path, log_file: Path, folder: Path, no_work: None, name: str
) -> None:
    for command in ("predict", "simulate"):
        text = fail(command, fit_file, log_file, "-o", name)
        assert "names that end in .parquet, .csv, .tsv or .jsonl" in " ".join(text.split())
    assert not list(folder.iterdir())


def test_predictions_replace_predictions_and_nothing_else(
    fit_file: Path, log_file: Path, folder: Path
) -> None:
    for name in ("p.parquet", "p"):
        for kind in ("marginal", "conditional"):
            succeed("predict", fit_file, log_file, "-o", name, "--kind", kind)
    one, other = pl.read_parquet(folder / "p.parquet"), pl.read_parquet(folder / "p/*.parquet")
    assert one.equals(other)
    assert sorted(path.name for path in folder.iterdir()) == ["p", "p.parquet"]
    (folder / "p" / "thesis.txt").write_text("x")
    assert "other files than predictions" in fail("predict", fit_file, log_file, "-o", "p")
    (folder / "notes").write_text("x")
    assert "notes is a file" in fail("predict", fit_file, log_file, "-o", "notes")
    (folder / "d.csv").mkdir()
    assert "that is a folder" in fail("predict", fit_file, log_file, "-o", "d.csv")


def test_simulated_clicks_on_a_stored_log_are_what_the_name_says(
    fitted: Path, folded: Path, folder: Path
) -> None:
    told = [
        succeed_with_json("simulate", fitted, folded, "-o", name, "--seed", "3")
        for name in ("s.csv", "s.parquet", "s.gclog")
    ]
    keys = ("sessions", "results", "clicks")
    assert all([t[k] for k in keys] == [told[0][k] for k in keys] for t in told)
    text, table = pl.read_csv(folder / "s.csv"), pl.read_parquet(folder / "s.parquet")
    assert text["session"].n_unique() == table["session"].n_unique() == told[0]["sessions"] == 600
    assert len(text) == len(table) == told[0]["results"]
    assert text["click"].sum() == table["click"].sum() == told[0]["clicks"]
    assert gecasmo.read_log(str(folder / "s.csv")).n_sessions == 600
    assert "--force replaces it" in fail("simulate", fitted, folded, "-o", "s.gclog")
    succeed("simulate", fitted, folded, "-o", "s.gclog", "--force")
    with pytest.raises(ClickLogError, match="a stored log, which is a folder"):
        gecasmo.load(fitted).simulate(gecasmo.open_log(folded), path="x.csv")


def test_where_simulated_clicks_of_a_file_go(fit_file: Path, log_file: Path, no_work: None) -> None:
    text = fail("simulate", fit_file, log_file, "-o", "s.gclog")
    assert "name a file that ends in .parquet" in text


# -- what is counted ---------------------------------------------------------------------------
def test_counts_are_those_of_the_source(
    repeating: Path, folded: Path, fitted: Path, folder: Path
) -> None:
    n_results = len(pl.read_csv(repeating))
    stored = gecasmo.open_log(folded)
    assert stored.n_source_results == n_results > 10 * stored.n_results
    again = ("ingest", repeating, "-o", "x.gclog", "--fold", "--partitions", "2")
    told = succeed_with_json(*again)
    assert (told["sessions"], told["results"]) == (600, n_results)
    assert (told["stored_pages"], told["stored_results"]) == (stored.n_pages, stored.n_results)
    text = succeed(*again, "--force").stdout
    assert f"results     {n_results:,}\n" in text
    assert f"into {stored.n_pages} different pages with {stored.n_results} results" in text
    for log in (folded, repeating):
        told = succeed_with_json("fit", "PBM", log, "-o", "x.fit")
        assert (told["sessions"], told["results"]) == (600, n_results)
        told = succeed_with_json("evaluate", fitted, log)
        assert (told["sessions"], told["results"]) == (600, n_results)
        told = succeed_with_json("predict", fitted, log, "-o", "p.parquet")
        rows = n_results if log == repeating else stored.n_results
        assert (told["results"], told["rows"]) == (n_results, rows)
        assert pl.read_parquet(folder / "p.parquet").height == rows
    text = succeed("predict", fitted, folded, "-o", "p.parquet").stdout
    assert f"of {n_results:,} results, in {stored.n_results} rows with weights" in text


def test_impossible_sessions_are_counted_in_the_source(
    repeating: Path, folded: Path, folder: Path
) -> None:
    never = gecasmo.PBM.with_values(examination={1: 0.5, 2: 0.0, 3: 0.5, 4: 0.5}, attraction=0.5)
    never.save(folder / "never.fit")
    frame = pl.read_csv(repeating)
    n_bad = frame.filter((pl.col("rank") == 2) & (pl.col("click") == 1))["session"].n_unique()
    for log in (folded, repeating):
        drop = ("never.fit", log, "--impossible", "drop")
        assert succeed_with_json("evaluate", *drop)["sessions"] == 600 - n_bad
        told = succeed_with_json("predict", *drop, "-o", "p.parquet")
        assert told["left_out_sessions"] == n_bad
        assert any(f"{n_bad} of 600 sessions are impossible" in text for text in told["warnings"])


def test_floored_observations_are_counted_in_the_source(repeating: Path, folded: Path) -> None:
    flags = ("--fixed", "continuation=0", "--impossible", "floor", "--max-iter", "2", "--tol", "0")
    found, wanted = (
        succeed_with_json("fit", "DBN", log, "-o", log.with_suffix(".fit"), *flags)
        for log in (folded, repeating)
    )
    assert found["floored_results"] == wanted["floored_results"] > 50
    assert found["log_likelihood"] == pytest.approx(wanted["log_likelihood"])


# -- stored logs where none is taken -----------------------------------------------------------
def test_commands_that_take_no_stored_log_say_what_to_do(fitted: Path, folded: Path) -> None:
    for arguments, advice in [
        (("update", fitted, folded, "-o", "x.fit"), f"-o FILE --start {fitted}"),
        (("explain", fitted, folded, "--session", "1"), "Give it a file"),
        (("compare", folded, "PBM"), "score it on other pages with `gecasmo evaluate`"),
        (("ingest", folded, "-o", "x.gclog"), "is a stored log already"),
        (("evaluate", folded, folded), "a fit is wanted here"),
    ]:
        text = " ".join(fail(*arguments).split())
        assert "stored log" in text
        assert advice in text
        assert "open_log" not in text


# -- checkpoints -------------------------------------------------------------------------------
def test_a_checkpoint_of_another_fit_says_what_differs(folded: Path, folder: Path) -> None:
    begin = ("fit", "PBM", folded, "-o", "x.fit", "--checkpoint", "ck")
    done = invoke(*begin, "--max-iter", "2")
    assert "ck can be removed: x.fit has everything" in done.stderr
    again = invoke(*begin, "--max-iter", "2")
    assert "--start FIT and another --checkpoint folder" in " ".join(again.stderr.split())
    text = fail(*begin, "--max-iter", "3", "--seed", "4")
    assert "--max-iter 2 then and --max-iter 3 now; --seed 0 then and --seed 4 now" in text
    assert "tol" not in text
    text = fail(*begin, "--max-iter", "2", "--fixed", "examination=0.5")
    assert "What differs: the key of 'examination'; the form of 'examination'. Name" in text
    text = fail("fit", "DBN", *begin[2:], "--max-iter", "2")
    assert "What differs: the model. Name" in text
    shutil.copytree(folded, "other.gclog")
    manifest = folder / "other.gclog" / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    text = fail("fit", "PBM", "other.gclog", *begin[3:], "--max-iter", "2")
    assert "What differs: the log. Name" in text


def test_places_that_are_no_checkpoint_folders(folded: Path, log_file: Path, folder: Path) -> None:
    (folder / "file").write_text("x")
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("x")
    begin = ("fit", "PBM", folded, "-o", "x.fit", "--checkpoint")
    assert "file is a file. A fit keeps its progress in a folder" in fail(*begin, "file")
    assert "not of a fit" in fail(*begin, "mine")
    assert [path.name for path in (folder / "mine").iterdir()] == ["thesis.txt"]
    text = fail("fit", "PBM", log_file, "-o", "x.fit", "--checkpoint", "ck")
    assert "--checkpoint is for stored logs (`gecasmo ingest` makes one)" in text
    assert "resumed by --start FIT" in " ".join(text.split())


# -- interrupted -------------------------------------------------------------------------------
def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_an_interrupted_ingest_says_how_to_go_on(
    repeating: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "_write_all", interrupt)
        text = fail("ingest", repeating, "-o", "x.gclog", code=130)
    assert "Interrupted. The same command continues the work" in text
    assert "x.gclog.part" in text
    succeed("ingest", repeating, "-o", "x.gclog", "--memory", "200MB")
    assert gecasmo.open_log(folder / "x.gclog").n_sessions == 600


@pytest.mark.parametrize("passes", [0, 3])
def test_an_interrupted_fit_says_how_to_go_on(
    folded: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    run = DiskParts.run

    def some_passes(self: Any, task: Any) -> Any:
        return interrupt() if self.n_passes == passes else run(self, task)

    begin = ("fit", "PBM", folded, "-o", "x.fit", "--checkpoint", "ck")
    with monkeypatch.context() as patch:
        patch.setattr(DiskParts, "run", some_passes)
        found = invoke(*begin)
    assert found.exit_code == 130
    assert "The same command resumes the fit from ck" in found.stderr
    assert "--start" not in found.stderr
    assert "can be removed" not in found.stderr
    assert (folder / "x.fit").exists() == (passes > 0)
    succeed(*begin)
    succeed("fit", "PBM", folded, "-o", "y.fit")
    one, other = (gecasmo.load(folder / name).parameters for name in ("x.fit", "y.fit"))
    assert one["examination"].equals(other["examination"])


BY_DOCUMENT = """
from gecasmo import ClickModel, Parameter, flip

class ByDocument(ClickModel):
    attraction = Parameter("doc")

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
"""


@pytest.mark.parametrize("step", ["learn", "summed_up"])
def test_a_fit_that_is_interrupted_late_goes_on_by_its_checkpoint(
    folded: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(Posteriors, step, lambda *_: interrupt())
    # Rows that are spread over parts are fitted to priors that were learned before.
    (folder / "mine.py").write_text(BY_DOCUMENT)
    model = "mine.py:ByDocument" if step == "learn" else "PBM"
    begin = ("fit", model, folded, "-o", "x.fit")
    kept, lost = invoke(*begin, "--checkpoint", "ck"), invoke(*begin)
    assert kept.exit_code == lost.exit_code == 130
    assert "The same command resumes the fit from ck" in kept.stderr
    assert "--start" not in kept.stderr
    assert "continue with --start FIT" in lost.stderr


def test_a_check_counts_pages_as_they_were_shown(repeating: Path, folded: Path) -> None:
    found, wanted = (succeed_with_json("check", log) for log in (folded, repeating))
    told = [{f["topic"]: f["message"] for f in data["findings"]} for data in (found, wanted)]
    for topic in ("clicks", "pairs", "repeats"):
        assert told[0][topic] == told[1][topic]


def test_a_check_of_very_many_equal_pages_looks_at_whole_queries(folded: Path) -> None:
    log = next(part for part in gecasmo.open_log(folded).partitions() if part.n_sessions)
    assert shown_pages(log, 10**6).n_sessions == log.n_sources() > log.n_sessions
    some = shown_pages(log, log.n_sources() - 1)
    first = log.session_column("query")[0]
    n_first = int(log.weight[(log.session_column("query") == first).to_numpy()].sum())
    assert some.n_sessions == n_first or some.session_column("query").n_unique() > 1
    assert shown_pages(log, 5).n_sessions == 5  # the first page alone was shown more often
    assert log.weight[0] > 5


@pytest.mark.parametrize("begun_in_python", [True, False])
def test_a_fit_goes_on_whoever_began_it(
    folded: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, begun_in_python: bool
) -> None:
    """From Python and from the command line: the passes that were made are not made again."""

    def fit(in_python: bool) -> None:
        if in_python:
            gecasmo.PBM().fit(gecasmo.open_log(folded), gecasmo.EM(), checkpoint="ck")
        else:
            succeed("fit", "PBM", folded, "-o", "x.fit", "--checkpoint", "ck")

    run, parts, made = DiskParts.run, DiskParts._all_parts, []

    def two_passes(self: Any, task: Any) -> Any:
        if self.n_passes == 2:
            raise AssertionError("enough")
        return run(self, task)

    def counted(self: Any, task: Any) -> Any:
        made.append(task)
        return parts(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(DiskParts, "run", two_passes)
        with pytest.raises(AssertionError):
            fit(begun_in_python)
    monkeypatch.setattr(DiskParts, "_all_parts", counted)
    fit(not begun_in_python)
    n_made = len(made)
    shutil.rmtree("ck")
    fit(in_python=True)
    assert len(made) - n_made == n_made + 2


@pytest.mark.parametrize("of_logs", [True, False])
def test_weights_that_add_up_to_the_pages_are_not_dropped(
    fitted: Path, repeating: Path, folder: Path, of_logs: bool
) -> None:
    frame = pl.read_csv(repeating).with_columns(often=pl.col("session") % 2 + 0.5)
    options: dict[str, Any] = {"partitions": 2, "fold": False}
    if of_logs:
        log = gecasmo.read_log(frame, weight="often")
        stored = gecasmo.ClickLog.ingest([log], folder / "w.gclog", **options)
    else:
        stored = gecasmo.ClickLog.ingest(frame, folder / "w.gclog", weight="often", **options)
    assert stored.total_weight == stored.n_sessions
    succeed("simulate", fitted, "w.gclog", "-o", "made.csv")
    made = pl.read_csv(folder / "made.csv").unique("session")
    assert sorted(made["weight"]) == [0.5] * 300 + [1.5] * 300
