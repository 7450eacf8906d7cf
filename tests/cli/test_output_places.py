"""What --output may name: files, links, pipes, devices, standard output; never what is read."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PROGRAM, fail, invoke, run, succeed

import gecasmo
from gecasmo.files import whole_file

MODELS = """
from gecasmo import DBN

class Own(DBN):
    pass
"""
# A command of each kind that writes, with the ending of what it writes.
WRITERS = {
    "fit": (("fit", "RCTR", "{log}", "--tol", "1e-3"), ".fit"),
    "update": (("update", "{fit}", "{log}", "--tol", "1e-2"), ".fit"),
    "judgments": (("judgments", "{fit}"), ".csv"),
    "predict": (("predict", "{fit}", "{log}"), ".csv"),
    "simulate": (("simulate", "{fit}", "{log}"), ".csv"),
    "compare": (("compare", "{log}", "RCTR", "--bootstrap", "0"), ".csv"),
    "propensities": (("propensities", "{fit}", "{log}"), ".csv"),
    "check": (("check", "{log}", "--drop-suspicious"), ".csv"),
    "best": (("best", "{fit}", "{log}", "--samples", "0", "--log", "none"), ".csv"),
    "show": (("show", "{fit}"), ".html"),
}
Write = Callable[..., bytes]


@pytest.fixture
def write(fit_file: Path, log_file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Run one of the commands above with another --output; what it prints."""
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)  # files tell how long a fit took

    def written(command: str, target: str) -> bytes:
        words = [word.format(fit=fit_file, log=log_file) for word in WRITERS[command][0]]
        found = invoke(*words, "-o", target)
        assert found.exit_code in (0, 4), found.output
        return found.stdout_bytes

    return written


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("command", WRITERS)
def test_links_are_written_through_and_files_keep_their_permissions(
    command: str, write: Write, folder: Path
) -> None:
    ending = WRITERS[command][1]
    (folder / "there").mkdir()
    real, link, dangling = folder / f"there/real{ending}", f"link{ending}", f"new{ending}"
    real.write_text("before")
    real.chmod(0o600)
    Path(link).symlink_to(f"there/real{ending}")
    Path(dangling).symlink_to(f"there/fresh{ending}")
    write(command, link)
    write(command, dangling)
    assert Path(link).is_symlink()
    assert Path(dangling).is_symlink()
    assert real.read_bytes() == (folder / f"there/fresh{ending}").read_bytes() != b"before"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert names(folder / "there") == sorted([f"real{ending}", f"fresh{ending}"])
    assert names(folder) == sorted([link, dangling, "there"])


@pytest.mark.parametrize("command", WRITERS)
def test_pipes_and_standard_output_are_given_the_whole_file(
    command: str, write: Write, folder: Path
) -> None:
    ending = WRITERS[command][1]
    write(command, f"file{ending}")
    wanted = Path(f"file{ending}").read_bytes()
    printed = write(command, "-")
    os.mkfifo("pipe")
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append(Path("pipe").read_bytes()))
    reader.start()
    write(command, "pipe")
    reader.join()
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    assert content == [wanted]
    assert printed == wanted
    assert names(folder) == [f"file{ending}", "pipe"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("command", WRITERS)
def test_devices_stay_devices(command: str, write: Write, folder: Path) -> None:
    # A device of our own: what would be lost if this fails must not be the machine's.
    os.mknod("nowhere", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.symlink("nowhere", "link")
    for name in ("nowhere", "link"):
        write(command, name)
        assert stat.S_ISCHR(Path(name).stat().st_mode)
    assert Path("link").is_symlink()
    assert names(folder) == ["link", "nowhere"]


def test_charts_go_through_links(log_file: Path, folder: Path) -> None:
    pytest.importorskip("vl_convert")
    succeed("check", log_file, "--plots", "plots", "--plots-format", "svg")
    first = min((folder / "plots").iterdir())
    first.rename(folder / "real.svg")
    first.symlink_to(folder / "real.svg")
    before = (folder / "real.svg").stat().st_mtime_ns
    succeed("check", log_file, "--plots", "plots", "--plots-format", "svg")
    assert first.is_symlink()
    assert (folder / "real.svg").stat().st_mtime_ns > before


def test_descriptors_of_the_shell(fit_file: Path, folder: Path) -> None:
    """Open files are written where they stand, and not replaced."""
    with Path("both").open("ab") as both:
        both.write(b"before\n")
        both.flush()
        done = subprocess.run(
            [*PROGRAM, "judgments", str(fit_file), "-o", "/dev/stdout", "-q"],
            stdout=both,
            check=False,
        )
    assert done.returncode == 0
    lines = Path("both").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "before"
    assert lines[1].startswith("query,doc,")


def test_a_saved_folder_may_be_a_link(fit_file: Path, folder: Path) -> None:
    model = gecasmo.load(fit_file)
    model.save("real", folder=True)
    os.symlink("real", "link")
    model.save("link", folder=True)
    assert Path("link").is_symlink()
    assert gecasmo.load("link").is_fitted
    assert names(folder) == ["link", "real"]


def test_a_stored_log_may_be_a_link(log_file: Path, folder: Path) -> None:
    succeed("ingest", log_file, "-o", "real.gclog", "-q")
    os.symlink("real.gclog", "link.gclog")
    os.symlink("fresh.gclog", "new.gclog")
    for name in ("link.gclog", "new.gclog"):
        succeed("ingest", log_file, "-o", name, "--force", "-q")
        assert Path(name).is_symlink()
        assert gecasmo.open_log(name).n_sessions == 240
    assert names(folder) == ["fresh.gclog", "link.gclog", "new.gclog", "real.gclog"]


def test_content_is_on_the_disk_before_it_has_a_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    sync, move = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        told.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def moved(self: Path, target: Path) -> Path:
        told.append("name")
        return move(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    with whole_file("x") as file:
        file.write_text("x")
    assert told == ["file", "name", "folder"]


def test_nobody_reads_on_the_way_what_he_could_not_read_before(folder: Path) -> None:
    Path("x").write_text("secret", encoding="utf-8")
    Path("x").chmod(0o600)
    with whole_file("x") as file:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text("more")
    assert Path("x").read_text(encoding="utf-8") == "more"
    Path("x").chmod(0o440)
    with whole_file("x") as file:
        file.write_text("again")
    assert stat.S_IMODE(Path("x").stat().st_mode) == 0o440


# -- what is read stays what it is -------------------------------------------------------------
READS = {
    "fit": ("fit", "RCTR", "{x}", "--format", "table"),
    "fit a pattern": ("fit", "RCTR", "x*"),
    "fit one's own model": ("fit", "{x}:Own", "{log}"),
    "update": ("update", "{fit}", "{x}"),
    "judgments": ("judgments", "{x}", "--format", "csv"),
    "judgments with features": ("judgments", "{fit}", "--format", "ranklib", "--features", "{x}"),
    "predict": ("predict", "{x}", "{log}"),
    "predict of": ("predict", "{fit}", "{x}"),
    "simulate": ("simulate", "{fit}", "{x}"),
    "compare": ("compare", "{x}", "RCTR"),
    "compare held out": ("compare", "{log}", "RCTR", "--heldout", "{x}"),
    "compare judgments": ("compare", "{log}", "RCTR", "--judgments", "{x}"),
    "propensities": ("propensities", "{x}"),
    "propensities of": ("propensities", "{fit}", "{x}"),
    "ingest": ("ingest", "{x}"),
    "check": ("check", "{x}", "--drop-suspicious"),
    "best": ("best", "{fit}", "{x}"),
    "best of a log": ("best", "{fit}", "{log}", "--log", "{x}"),
    "show": ("show", "{x}"),
    "show one's own model": ("show", "{x}:Own"),
    "report": ("report", "{x}", "{log}"),
    "report of": ("report", "{fit}", "{x}"),
    "judgments with judges": ("judgments", "{fit}", "--grades", "{x}"),
    "judgments of a run": ("judgments", "{fit}", "--run", "{x}"),
    "judgments of pairs": ("judgments", "{fit}", "--pairs", "{x}"),
}


@pytest.mark.parametrize("command", READS)
def test_no_command_writes_to_what_it_reads(
    command: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    own = MODELS if "own model" in command else None
    Path("x.csv").write_bytes(log_file.read_bytes() if own is None else own.encode())
    if own is not None:
        Path("x.csv").rename("x.py")
    name = "x.csv" if own is None else "x.py"
    before = Path(name).read_bytes()
    os.symlink(name, "symbolic.csv")
    os.link(name, "hard.csv")
    words = [word.format(x=name, fit=fit_file, log=log_file) for word in READS[command]]
    others = [name, f"./{name}", str(folder / name), "symbolic.csv", "hard.csv"]
    for target in others:
        said = " ".join(fail(*words, "-o", target).split())
        assert f"--output {target}: that is what " in said, said
        assert "which is read here" in said
    assert Path(name).read_bytes() == before
    assert names(folder) == sorted([name, "symbolic.csv", "hard.csv"])


def test_standard_input_and_output_are_files_as_well(
    fit_file: Path, log_file: Path, folder: Path
) -> None:
    Path("x.csv").write_bytes(log_file.read_bytes())
    for arguments, mode in [(("-", "-o", "x.csv"), "rb"), (("x.csv", "-o", "-"), "r+b")]:
        with Path("x.csv").open(mode) as file:
            stream = {"stdin": file} if mode == "rb" else {"stdout": file}
            done = subprocess.run(
                [*PROGRAM, "simulate", str(fit_file), *arguments],
                **stream,  # type: ignore[call-overload]
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 1
        assert b"which is read here" in done.stderr
    assert Path("x.csv").read_bytes() == log_file.read_bytes()


# What a second flag writes, beside --output.
SECOND = {
    "--worth-output": ("judgments", "{fit}", "--worth-judging", "3"),
    "--draws-output": ("best", "{fit}", "{log}", "--draws", "2"),
    "--report": ("compare", "{log}", "RCTR", "--bootstrap", "0"),
}


@pytest.mark.parametrize("flag", SECOND)
@pytest.mark.parametrize(
    ("first", "second"), [("j.csv", "./j.csv"), ("-", "-"), ("-", "/dev/stdout")]
)
def test_two_results_do_not_share_a_place(
    flag: str, first: str, second: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    words = [word.format(fit=fit_file, log=log_file) for word in SECOND[flag]]
    said = fail(*words, "-o", first, flag, second)
    assert f"{flag} {second}: --output {first} goes to the same place." in said
    assert names(folder) == []


def test_a_report_does_not_replace_the_model(log_file: Path, folder: Path) -> None:
    Path("x.py").write_text(MODELS, encoding="utf-8")
    said = fail("compare", log_file, "x.py:Own", "--report", "x.py")
    assert "which is read here" in said
    assert Path("x.py").read_text(encoding="utf-8") == MODELS


def test_tables_of_judges_replace_no_grades(fit_file: Path, folder: Path) -> None:
    """Whoever fills in the grades of worth_judging.csv gives it back, beside the same --report."""
    Path("told").mkdir()
    pairs = gecasmo.load(fit_file).judgments().frame.select("query", "doc").head(9)
    graded = Path("told/worth_judging.csv")
    pairs.with_columns(grade=1).write_csv(graded)
    before = graded.read_bytes()
    flags = ("--grades", graded, "--report", "told")
    assert "which is read here" in fail("judgments", fit_file, "-o", "j.csv", *flags)
    assert graded.read_bytes() == before
    flags = ("--report", "told", "--worth-output", "told/worth_judging.csv")
    assert "goes to the same place" in fail("judgments", fit_file, "-o", "j.csv", *flags)
    assert names(folder) == ["told"]


@pytest.mark.parametrize("flag", ["--worth-output", "--report"])
def test_a_second_result_on_standard_output_is_alone_there(
    flag: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    words = [word.format(fit=fit_file, log=log_file) for word in SECOND[flag]]
    done = succeed(*words, *(() if flag == "--report" else ("-o", "j.csv")), flag, "-")
    last = done.stdout.splitlines()[-1]
    assert last == "</html>" if flag == "--report" else last.count(",") == 9
    assert ("RCTR" if flag == "--report" else "Worth judging: standard output.") in done.stderr


@pytest.mark.parametrize("command", ["compare", "propensities"])
def test_what_is_told_beside_standard_output(
    command: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    words = [word.format(fit=fit_file, log=log_file) for word in WRITERS[command][0]]
    assert "Written to standard output." in succeed(*words, "-o", "-").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "{log}", "--drop-suspicious", "-o", "x.html"), "name a file that ends in"),
        (("check", "{log}", "--plots", "/proc/none"), "cannot be written to"),
        (("check", "{log}", "--plots", "x" * 300), "too long"),
        (("judgments", "{fit}", "-o", "j.csv", "--report", "/proc/none"), "cannot be written to"),
        (("judgments", "{fit}", "-o", "j.csv", "--report", "{fit}/x"), "is a file; name a folder"),
    ],
)
def test_other_places_are_tried_before_the_work(
    words: tuple[str, ...],
    said: str,
    fit_file: Path,
    log_file: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gecasmo.cli.lookup.load_fit", None)
    monkeypatch.setattr("gecasmo.cli.flags.LogFlags.look", None)
    found = fail(*(word.format(fit=fit_file, log=log_file) for word in words))
    assert said in " ".join(found.split())


def test_a_fit_may_take_its_own_place(fit_file: Path, log_file: Path, folder: Path) -> None:
    Path("x.fit").write_bytes(fit_file.read_bytes())
    succeed("update", "x.fit", log_file, "-o", "x.fit")
    succeed("fit", "DBN", log_file, "-o", "x.fit", "--start", "x.fit")
    assert gecasmo.load("x.fit").is_fitted


@pytest.mark.parametrize("command", [*WRITERS, "ingest"])
def test_long_names_work_or_fail_before_the_work(
    command: str, fit_file: Path, log_file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, ending = WRITERS.get(command, (("ingest", "{log}"), ".gclog"))
    given = [word.format(fit=fit_file, log=log_file) for word in words]
    fitting = "x" * (240 - len(ending)) + ending
    assert invoke(*given, "-o", fitting).exit_code in (0, 4)
    assert names(folder) == [fitting]
    monkeypatch.setattr("gecasmo.cli.lookup.load_fit", None)
    monkeypatch.setattr("gecasmo.cli.flags.LogFlags.look", None)
    said = fail(*given, "-o", "x" * 300 + ending)
    assert "file name too long; choose a shorter one" in said


@pytest.mark.parametrize("command", ["judgments", "compare", "propensities"])
def test_a_full_device(command: str, fit_file: Path, log_file: Path, folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    os.symlink("/dev/full", "full.csv")
    words = [word.format(fit=fit_file, log=log_file) for word in WRITERS[command][0]]
    said = fail(*words, "-o", "full.csv")
    assert "full.csv cannot be written: the disk is full." in said
    assert Path("full.csv").is_symlink()


def test_process_substitution(fit_file: Path, folder: Path) -> None:
    reading, writing = os.pipe()
    done = run("judgments", fit_file, "-o", "j.csv", "-q")
    assert done.returncode == 0
    os.set_inheritable(writing, True)
    content: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as file:
            content.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    subprocess.run(
        [*PROGRAM, "judgments", str(fit_file), "-o", f"/dev/fd/{writing}", "-q"],
        pass_fds=[writing],
        check=True,
    )
    os.close(writing)
    reader.join()
    assert content == [Path("j.csv").read_bytes()]
