"""What the README shows runs as it stands, and its figures are those that were measured."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BENCHMARKS = README.parent / "docs" / "benchmarks.md"
RESULTS = README.parent / "benchmarks" / "results"


def text_of(path):
    return path.read_text(encoding="utf-8")


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", text_of(README), flags=re.DOTALL)
    assert blocks
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    namespace = {"__name__": "readme", "__file__": str(program)}
    exec(compile(text_of(program), str(program), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "judgments by TwoKindsOfUsers" in printed
    assert "TwoKindsOfUsers: passed" in printed


def test_the_readme_begins_with_how_to_install_it_and_is_short():
    commands = re.findall(r"```console\n(.*?)```", text_of(README), flags=re.DOTALL)
    shown = [[line.split("#")[0].strip() for line in block.splitlines()] for block in commands]
    assert shown[0] == ["pip install gecasmo"]
    assert shown[1] == ["make demo", "make test"]
    assert len(text_of(README).splitlines()) <= 120


def test_the_readme_says_who_has_which_model_as_the_page_about_it_does():
    def cells(line):
        return [cell.strip() for cell in line.strip("|").split("|")]

    short = text_of(README).split("| [who has them]")[1].split("\n\n")[0].splitlines()
    page = text_of(README.parent / "docs" / "coming-from.md")
    whole = page.split("## Which library has which model")[1].splitlines()
    assert cells(short[0])[1:] == cells(whole[2])[1:]
    assert cells(short[-1]) == cells(next(line for line in whole if line.startswith("| your own")))


def test_ci_runs_the_test_command_of_the_readme():
    script = text_of(README.parent / ".ci" / "run").splitlines()
    assert script[-1] == "make test"


def test_every_page_that_is_linked_is_there():
    for page in (README, *(README.parent / "docs").glob("*.md")):
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page))
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_every_page_of_docs_can_be_reached_from_the_readme():
    found, wanted = set(), [README]
    while wanted:
        page = wanted.pop()
        if page in found:
            continue
        found.add(page)
        for link in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text_of(page)):
            wanted.append((page.parent / link).resolve())
    assert set((README.parent / "docs").resolve().glob("*.md")) <= found


def test_the_figures_of_the_readme_are_those_of_the_page_about_them():
    table = text_of(README).split("| measured on two cores")[1].split("\n\n")[0]
    measured = text_of(BENCHMARKS)
    figures = re.findall(r"\d+\.\d+|\d+ (?:s|to \d+ %)", table)
    assert len(figures) >= 11
    assert [figure for figure in figures if figure not in measured] == []


def test_the_table_of_speed_is_that_of_the_last_benchmark():
    measured = text_of(RESULTS / "latest.md")
    rows = re.findall(
        r"^\| (DBN|UBM|Restless)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$",
        text_of(BENCHMARKS),
        flags=re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["DBN", "UBM", "Restless"]
    for row in rows:
        assert f"| {' | '.join(row)} |" in measured


def test_the_figures_of_priors_are_those_of_the_last_benchmark():
    measured = text_of(RESULTS / "priors.md")
    text = text_of(BENCHMARKS)
    for label, line in {
        "pseudo-counts (1, 1)": r"^\| pseudo-counts \(1, 1\) \|(.*)\|$",
        "one prior for all rows": r"^\| one prior for all rows \|(.*)\|$",
        "learned prior (the default)": r"^\| learned prior, the default \|(.*)\|$",
    }.items():
        shown = re.search(line, text, flags=re.MULTILINE).group(1)
        rows = re.findall(rf"^\| [\d,]+ \| {re.escape(label)} \|.*$", measured, flags=re.MULTILINE)
        found = [row.split("|")[6].strip() for row in rows]
        assert [cell.strip() for cell in shown.split("|")] == found
    rows = re.findall(r"^\| (?:very )?(?:dense|sparse) \| .*$", measured, flags=re.MULTILINE)
    assert len(rows) == 12
    for row in rows:
        *_, gain, over_earlier = (cell.strip() for cell in row.strip("|").split("|"))
        assert float(gain) > 0
        assert float(over_earlier) >= -0.0009


def test_the_intervals_hold_as_often_as_the_page_says():
    measured = text_of(RESULTS / "priors.md")
    rows = re.findall(r"^\| [^|]*order[^|]*\| .*$|^\| good ranker.*$", measured, flags=re.MULTILINE)
    pairs = [row for row in rows if "| attraction |" in row]
    odd = [row for row in pairs if "good and bad" in row]  # no Beta prior is right there
    page = " ".join(text_of(BENCHMARKS).split())
    for some in ([row for row in pairs if row not in odd], [row for row in odd if "CCM" in row]):
        shares = [
            float(share)
            for row in some
            for share in re.findall(r"([\d.]+) ± [\d.]+% (?:\* )?\(", row)
        ]
        assert len(shares) >= 4
        assert f"{round(min(shares))} to {round(max(shares))} %" in page


def test_the_rankings_are_those_of_the_last_benchmark():
    measured = text_of(RESULTS / "judged.md")
    table = text_of(BENCHMARKS).split("| Spearman with the truth")[1].split("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) == 4
    for row in rows:
        assert row.rstrip("|").rstrip() in measured


def test_whole_commands_take_what_the_last_benchmark_says():
    measured = text_of(RESULTS / "command.md").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in measured]
    found = {(row[1], row[2]): [row[8], row[9], row[10]] for row in cells if len(row) > 10}
    shown = re.findall(r"^\| (10k|1M) \| ([^|]+) \| (.+) \|$", text_of(BENCHMARKS), re.MULTILINE)
    names = {"a program of one's own": "Own"}
    assert len(shown) == 6
    for pages, model, seconds in shown:
        assert seconds.split(" | ") == found[pages, names.get(model, model)]
