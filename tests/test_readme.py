"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    text = README.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 5
    (tmp_path / "tests").symlink_to(README.parent / "tests")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks))
    namespace = {"__name__": "readme", "__file__": str(program)}
    exec(compile(program.read_text(), str(program), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "log-likelihood per session" in printed
    assert "TwoKindsOfUsers: passed" in printed


def test_the_readme_begins_with_the_two_commands():
    commands = re.findall(r"```console\n(.*?)```", README.read_text(), flags=re.DOTALL)[0]
    assert [line.split("#")[0].strip() for line in commands.strip().splitlines()] == [
        "make demo",
        "make test",
    ]


def test_ci_runs_the_test_command_of_the_readme():
    script = (README.parent / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "make test"


def test_the_table_of_speed_is_that_of_the_last_benchmark():
    measured = (README.parent / "benchmarks" / "results" / "latest.md").read_text()
    rows = re.findall(
        r"^\| (DBN|UBM|Restless)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$",
        README.read_text(),
        flags=re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["DBN", "UBM", "Restless"]
    for row in rows:
        assert f"| {' | '.join(row)} |" in measured


def test_the_figures_of_priors_are_those_of_the_last_benchmark():
    measured = (README.parent / "benchmarks" / "results" / "priors.md").read_text()
    text = README.read_text()
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


def test_the_intervals_hold_as_often_as_the_readme_says():
    measured = (README.parent / "benchmarks" / "results" / "priors.md").read_text()
    rows = re.findall(r"^\| [^|]*order[^|]*\| .*$|^\| good ranker.*$", measured, flags=re.MULTILINE)
    pairs = [row for row in rows if "| attraction |" in row]
    odd = [row for row in pairs if "good and bad" in row]  # no Beta prior is right there
    readme = " ".join(README.read_text().split())
    for some in ([row for row in pairs if row not in odd], [row for row in odd if "CCM" in row]):
        shares = [
            float(share)
            for row in some
            for share in re.findall(r"([\d.]+) ± [\d.]+% (?:\* )?\(", row)
        ]
        assert len(shares) >= 4
        assert f"{round(min(shares))} to {round(max(shares))} %" in readme


def test_the_rankings_are_those_of_the_last_benchmark():
    measured = (README.parent / "benchmarks" / "results" / "judged.md").read_text()
    table = README.read_text().split("| Spearman with the truth")[1].split("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) == 4
    for row in rows:
        assert row.rstrip("|").rstrip() in measured
